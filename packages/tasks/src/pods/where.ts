import { type Alongside, type Handler, InvalidLifecycle } from 'phaselock'
import {
  type Cluster,
  type HeldCluster,
  type KindRef,
  type OwnerLifecycle,
  type RegionSource,
  regionWorks,
  watchObjects,
} from 'phaselock/kubernetes'
import type { RunningStep } from 'phaselock/tasks'

/** The fields of a document that determine the place of its objects. */
export interface Homed {
  readonly _id: unknown
  readonly region?: string | undefined
  readonly gatewayId?: unknown
}

/** The place where objects are created: in the region that the document names, or all in one namespace of one cluster. */
export type Where =
  | { readonly regions: RegionSource; readonly cluster?: undefined; readonly namespace?: undefined }
  | { readonly cluster: Cluster; readonly namespace: string; readonly regions?: undefined }

/** Checks options that JavaScript callers may have left out. @throws InvalidLifecycle */
export function whereOf(lifecycle: string, { regions, cluster, namespace }: Partial<Where>): Where {
  if (regions) return { regions }
  if (cluster && namespace) return { cluster, namespace }
  throw new InvalidLifecycle(lifecycle, [
    `expected regions, or cluster and namespace, so that it is known where objects are made; got ${cluster ? 'cluster' : namespace ? 'namespace' : 'none of them'}`,
  ])
}

/** The place of one document's objects; stored in the document before the first of them is created. */
export interface Place {
  /** Absent if there is only one cluster. */
  readonly region?: string
  readonly namespace: string
  /** The name of its objects. */
  readonly name: string
}

interface PlacedDocument extends Homed {
  readonly lockedBy?: string
  readonly placed?: Place | null | undefined
}

/** The cluster and the place that one step works in. */
export interface Site {
  readonly cluster: HeldCluster
  /** The stored place, else the one to be stored. */
  readonly place: Place
}

/**
 * Finds the cluster and the place of a document. A document that is placed stays there, even if its `region` or the region's
 * rules change.
 */
export function siteOf(where: Where, lifecycle: OwnerLifecycle, nameFor: (id: unknown) => string) {
  return async (doc: PlacedDocument, step: RunningStep): Promise<Site> => {
    const { placed } = doc
    const name = nameFor(doc._id)
    if (where.cluster) {
      const { cluster, namespace } = where
      return { cluster: cluster.hold(doc, step, lifecycle), place: placed ?? { namespace, name } }
    }
    const home = await where.regions.of(placed?.region ?? doc.region)
    const place = placed ?? { region: home.name, namespace: home.namespaceFor(doc), name }
    return { cluster: home.cluster.hold(doc, step, lifecycle), place }
  }
}

/** Wakes documents when one of their objects becomes ready, fails or is gone, wherever they are. */
export function watchOf(where: Where, kinds: readonly KindRef[]): readonly Alongside[] {
  const { regions, cluster, namespace } = where
  if (regions) return regionWorks(regions, kinds)
  return [watchObjects({ kinds, clusters: () => [cluster], namespaces: () => [namespace] })]
}

/**
 * Skips the handler of a document that was never placed. It has nothing in any cluster, so it continues without asking one,
 * even if its region is invalid.
 */
export function ifPlaced<Next extends string, Doc extends Pick<PlacedDocument, 'placed'>>(
  next: Next,
  handler: Handler<Next, Doc>,
): Handler<Next, Doc> {
  return async (doc, step) => (doc.placed ? handler(doc, step) : step.moveTo(next))
}
