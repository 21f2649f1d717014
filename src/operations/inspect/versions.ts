import type { Document } from 'mongodb'
import { graphsIn, type KnownGraph, LIFECYCLES_COLLECTION, readOwnFields } from '../../lock/index.js'
import { graphDifferences } from '../../phases/index.js'
import type { System } from '../system/system.js'
import { listReplicas, type ReplicaState } from './replicas.js'

/** A definition of a lifecycle that live replicas run. */
export interface RunningGraph {
  /** Its digest; null: replicas of an older version don't say theirs. */
  readonly graph: string | null
  readonly replicas: readonly string[]
  /** The versions of their apps; `?`: one that doesn't say. */
  readonly versions: readonly string[]
  /** When the first replica with it started; null: it isn't kept. */
  readonly since: Date | null
  /** How it differs from the newest that runs, in words; empty for the newest, and where the definitions aren't kept. */
  readonly differences: readonly string[]
}

/** A lifecycle whose live replicas don't run the same. */
export interface MixedLifecycle {
  readonly lifecycle: string
  /** The newest first; those of an unknown definition last. */
  readonly graphs: readonly RunningGraph[]
  /** The phases that not all live replicas of the lifecycle have handlers for, with those that have. */
  readonly onlySome: readonly { readonly phase: string; readonly replicas: readonly string[] }[]
}

/**
 * The lifecycles whose live replicas run different definitions, or have handlers for different phases. As long as a version is rolled out that is
 * as it should be; if it lasts, some documents have fewer replicas than others. Replicas of an older version don't say what they run: they alone mix
 * nothing.
 * @example await versionsMixed(system) // [{ lifecycle: 'order', graphs: [...], onlySome: [{ phase: 'Checking', replicas: ['api-2~5f3a9c'] }] }]
 */
export async function versionsMixed(system: System): Promise<readonly MixedLifecycle[]> {
  const { replicas } = await listReplicas(system)
  return mixedAmong(system, replicas)
}

/** The same, for replicas that were listed already. */
export async function mixedAmong(
  { db, models }: Pick<System, 'db' | 'models'>,
  replicas: readonly ReplicaState[],
): Promise<readonly MixedLifecycle[]> {
  const live = replicas.filter(({ live: isLive }) => isLive)
  const found = models.flatMap(({ name }) => {
    const running = live.flatMap((replica) => {
      const own = replica.lifecycles.find((one) => one.name === name)
      return own?.phases ? [{ replica, graph: own.graph ?? null, phases: own.phases }] : []
    })
    const byGraph = Map.groupBy(running, ({ graph }) => graph)
    const phases = new Set(running.flatMap((one) => one.phases))
    const onlySome = [...phases].flatMap((phase) => {
      const having = running.filter((one) => one.phases.includes(phase))
      return having.length < running.length ? [{ phase, replicas: having.map(({ replica }) => replica.name) }] : []
    })
    const known = [...byGraph.keys()].filter((graph) => graph !== null)
    return known.length > 1 || onlySome.length > 0 ? [{ lifecycle: name, byGraph, onlySome }] : []
  })
  if (found.length === 0) return []
  const kept = await graphsOf(
    db,
    found.map(({ lifecycle }) => lifecycle),
  )
  return found.map(({ lifecycle, byGraph, onlySome }) => {
    const known = new Map((kept.get(lifecycle) ?? []).map((one) => [one.graph, one]))
    const ageOf = (graph: string | null) => known.get(graph ?? '')?.at.getTime() ?? Number.NEGATIVE_INFINITY
    const sorted = [...byGraph].sort(([a], [b]) => Number(a === null) - Number(b === null) || ageOf(b) - ageOf(a))
    const newest = known.get(sorted[0]?.[0] ?? '')
    const graphs = sorted.map(([graph, all]): RunningGraph => {
      const own = known.get(graph ?? '')
      return {
        graph,
        replicas: all.map(({ replica }) => replica.name),
        versions: [...new Set(all.map(({ replica }) => replica.appVersion ?? '?'))].sort(),
        since: own?.at ?? null,
        differences: own && newest && own !== newest ? graphDifferences(newest.of, own.of) : [],
      }
    })
    return { lifecycle, graphs, onlySome }
  })
}

async function graphsOf(
  db: System['db'],
  names: readonly string[],
): Promise<ReadonlyMap<string, readonly KnownGraph[]>> {
  const lifecycles = db.collection<Document & { _id: string }>(LIFECYCLES_COLLECTION)
  const filter = { _id: { $in: [...names] } }
  const entries = await readOwnFields((how) => lifecycles.find(filter, { projection: { graphs: 1 }, ...how }).toArray())
  return new Map(entries.map(({ _id, graphs }) => [String(_id), graphsIn(graphs)]))
}
