import {
  type HeldCluster,
  type KubernetesObject,
  NotOwned,
  onCluster,
  type RegionSource,
} from '../../kubernetes/index.js'
import { type Handler, type Outcome, type Step, Unavailable } from '../../phases/index.js'
import type { ApiGateway, GatewayPlacement } from '../documents.js'
import { COLLECTIONS } from '../documents.js'
import type { HeldGateway } from './held-gateway.js'

type Doc = Readonly<ApiGateway>
type AnyStep = Pick<Step<string, ApiGateway>, 'fence' | 'signal' | 'leaseLeftMs'>

/**
 * Whether this gateway has an instance and domains in a region; one made before regions were configured doesn't.
 * @throws Unavailable when it has, and this process knows no regions
 */
export function isPlaced(doc: Doc, regions: RegionSource | undefined): boolean {
  if (!doc.placed) return false
  if (!regions)
    throw new Unavailable(`region ${doc.placed.region}: the gateway is there, and this process has no regions`)
  return true
}

/** Decides on the region and the namespace, before anything is made there. */
export async function place(regions: RegionSource, gateway: HeldGateway, doc: Doc): Promise<GatewayPlacement> {
  const region = await regions.of(doc.region)
  const namespace = region.namespaceFor({ gatewayId: gateway.gatewayId })
  return { region: region.name, namespace, ownNamespace: region.createNamespace }
}

export async function makeNamespace(
  regions: RegionSource,
  gateway: HeldGateway,
  doc: Doc,
  step: AnyStep,
): Promise<void> {
  const { cluster, ref } = await namespaceOf(regions, gateway, doc, step)
  await cluster.ensure(ref)
}

/** A namespace of that name that isn't the gateway's is left alone: nothing was made in it. */
export async function removeNamespace(
  regions: RegionSource,
  gateway: HeldGateway,
  doc: Doc,
  step: AnyStep,
): Promise<string | undefined> {
  const { cluster, ref } = await namespaceOf(regions, gateway, doc, step)
  try {
    const removal = await cluster.remove(ref)
    return removal.gone ? undefined : removal.reason
  } catch (error) {
    if (error instanceof NotOwned) return undefined
    throw error
  }
}

async function namespaceOf(
  regions: RegionSource,
  gateway: HeldGateway,
  doc: Doc,
  step: AnyStep,
): Promise<{ cluster: HeldCluster; ref: KubernetesObject }> {
  const region = await regions.of(doc.placed!.region)
  const lifecycle = { name: 'api-gateway', collection: COLLECTIONS.gateway, db: gateway.collections.db }
  const ref = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: doc.placed!.namespace } }
  return { ref, cluster: region.cluster.hold(doc, step, lifecycle) }
}

/** Errors of a cluster in a gateway's own step become outcomes, as they do for its children. */
export function readingAnswers<P extends string>(
  handler: (doc: Doc, step: Step<P, ApiGateway>) => Promise<Outcome<P, ApiGateway>>,
): Handler<P, ApiGateway> {
  return onCluster<P, ApiGateway, undefined>(() => undefined, handler)
}
