import type { Cluster, Orphan } from '../../kubernetes/index.js'
import { Unavailable } from '../../phases/index.js'
import { durationMs } from '../../time/index.js'
import type { System } from '../system/system.js'
import { withRegions } from './regions.js'

/** The timeout of requests; no step waits for them. */
const REQUEST_TIMEOUT = '30s'

export interface OrphansRequest {
  /** A kubeconfig file of the cluster whose Secrets hold the regions' kubeconfigs. Default: as kubectl finds it. */
  readonly kubeconfig?: string | undefined
  /** If true, removes those that may be removed, each after reading its document again. Default false: nothing is changed. */
  readonly remove?: boolean | undefined
  /** The minimum age of an object to be removed: a duration, at least a lease and 5 s. Default `10m`. */
  readonly olderThan?: string | undefined
  /** If true, includes objects that documents in a final phase have left behind. */
  readonly ended?: boolean | undefined
  /** If true, acts even if the lifecycle's collection has no documents at all. */
  readonly empty?: boolean | undefined
  /** The regions to search. Default: all; without Region documents, the cluster of the kubeconfig. */
  readonly regions?: readonly string[] | undefined
  /** The namespaces to search. Default: the whole cluster. */
  readonly namespaces?: readonly string[] | undefined
}

/** An object in Kubernetes whose document is gone, or has ended. */
export interface OrphanState {
  readonly region: string | null
  readonly apiVersion: string
  readonly kind: string
  readonly namespace: string | null
  readonly name: string
  readonly uid: string
  readonly lifecycle: string
  readonly _id: unknown
  readonly why: 'gone' | 'ended'
  readonly reason: string
  /** null if unknown. */
  readonly ageMs: number | null
  /** The reason why it may not be removed; null if it may. */
  readonly kept: string | null
  /** With `remove`: true if it was removed, and otherwise `left` has the reason; undefined if it was not tried. */
  readonly removed?: boolean
  readonly left?: string | null
}

export interface OrphansReport {
  readonly orphans: readonly OrphanState[]
  /** Clusters (`what` is null) and kinds that could not be asked, with the reason. */
  readonly notLookedAt: readonly {
    readonly region: string | null
    readonly what: string | null
    readonly why: string
  }[]
  /** The lifecycles that were judged, and the number of objects of others. */
  readonly lifecycles: { readonly known: readonly string[]; readonly others: Readonly<Record<string, number>> }
  /** The number of objects that belong to documents of other databases. */
  readonly databases: Readonly<Record<string, number>>
  /** The number of clusters that have answered. */
  readonly asked: number
  /** The number of removals that a cluster has refused. */
  readonly failed: number
}

/**
 * Finds, and with `remove` removes, objects in Kubernetes whose documents are gone. Completed removals are reported even if a cluster
 * becomes unreachable midway.
 * @example (await findOrphans(system, { regions: ['eu-1'] })).orphans // [{ kind: 'Ingress', name: 'shop', why: 'gone', ... }]
 * @throws the database's own errors, InvalidDuration
 */
export async function findOrphans(system: System, request: OrphansRequest = {}): Promise<OrphansReport> {
  const { Orphans } = await import('../../kubernetes/index.js')
  const { remove = false, olderThan = '10m', ended = false, empty = false, namespaces } = request
  const { db, models } = system
  const sweep = new Orphans({ db, models, olderThanMs: durationMs(olderThan), ended, emptyCollections: empty })
  const orphans = new Map<string, OrphanState>()
  const notLookedAt: OrphansReport['notLookedAt'][number][] = []
  const [others, databases] = [{}, {}]
  let [asked, failed] = [0, 0]
  const look = async (cluster: Cluster, region: string | null, namespace: string | undefined) => {
    const found = await sweep.find(cluster, namespaces, namespace)
    asked += 1
    // Two regions may be in one cluster.
    const own = found.orphans.filter(({ uid }) => !orphans.has(uid))
    for (const orphan of own) orphans.set(orphan.uid, stateOf(orphan, region))
    notLookedAt.push(...found.notLookedAt.map((one) => ({ region, ...one })))
    addTo(others, found.lifecycles)
    addTo(databases, found.databases)
    for (const orphan of remove ? own : []) {
      const swept = await sweep.remove(cluster, orphan)
      const removed = swept === 'removed'
      if (!removed && swept.failed) failed += 1
      orphans.set(orphan.uid, { ...stateOf(orphan, region), removed, left: removed ? null : swept.left })
    }
  }
  const missed = await inEachRegion(system, request, look)
  const known = models.map(({ name }) => name)
  return {
    orphans: [...orphans.values()],
    notLookedAt: [...missed, ...notLookedAt],
    lifecycles: { known, others },
    databases,
    asked,
    failed,
  }
}

function stateOf({ ref, uid, owner, why, reason, ageMs, kept }: Orphan, region: string | null): OrphanState {
  const { apiVersion, kind } = ref
  const { name, namespace = null } = ref.metadata
  const object = { region, apiVersion, kind, namespace, name, uid }
  const ownedBy = { lifecycle: owner.model.name, _id: owner.id }
  return { ...object, ...ownedBy, why, reason, ageMs: Number.isNaN(ageMs) ? null : ageMs, kept: kept ?? null }
}

function addTo(sums: Record<string, number>, counts: ReadonlyMap<string, number>): void {
  for (const [name, n] of counts) sums[name] = (sums[name] ?? 0) + n
}

/** @returns the regions that can't be used, or whose cluster doesn't answer, with the reason */
async function inEachRegion(
  system: System,
  request: OrphansRequest,
  act: (cluster: Cluster, region: string | null, namespace: string | undefined) => Promise<void>,
): Promise<OrphansReport['notLookedAt']> {
  return await withRegions(system, request.kubeconfig, async (regions, home) => {
    const missed: OrphansReport['notLookedAt'][number][] = []
    const names = request.regions ?? (await regions.names())
    for (const name of names.length > 0 ? names : [null]) {
      let cluster: Cluster | undefined
      try {
        const region = name === null ? undefined : await regions.of(name)
        cluster = (region?.cluster ?? home).patient(REQUEST_TIMEOUT)
        await act(cluster, name, region?.namespace)
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error
        missed.push({ region: name, what: null, why: error.message })
      } finally {
        cluster?.close()
      }
    }
    return missed
  })
}
