import type { HeldCluster, KubernetesObject, RegionSource } from '../../kubernetes/index.js'
import { type RunningStep, Unavailable } from '../../phases/index.js'
import { type ApiGateway, COLLECTIONS, type GatewayPlacement } from './documents.js'
import type { HeldGateway } from './held-gateway.js'

type Doc = Readonly<ApiGateway>

/**
 * True if this gateway has an instance and domains in a region; one created before regions were configured has none there.
 * @throws Unavailable if it has, and this process knows no regions
 */
export function isPlaced(doc: Doc, regions: RegionSource | undefined): boolean {
  if (!doc.placed) return false
  if (!regions)
    throw new Unavailable(`region ${doc.placed.region}: the gateway is there, and this process has no regions`)
  return true
}

/** The gateway's own namespace, and the cluster that it is in. */
export async function namespaceOf(
  regions: RegionSource,
  placed: GatewayPlacement,
  gateway: HeldGateway,
  doc: Doc,
  step: RunningStep,
): Promise<{ cluster: HeldCluster; ref: KubernetesObject }> {
  const region = await regions.of(placed.region)
  const lifecycle = { name: 'api-gateway', collection: COLLECTIONS.gateway, db: gateway.collections.db }
  const ref = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: placed.namespace } }
  return { ref, cluster: region.cluster.hold(doc, step, lifecycle) }
}
