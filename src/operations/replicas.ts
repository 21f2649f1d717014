import { LIFECYCLES_COLLECTION, PRESENT_REPLICAS, readOwnFields } from '../lock/index.js'
import type { System } from './system.js'

/** A replica as it has announced itself: those whose caller ticks them don't. */
export interface ReplicaState {
  /** The beginning of `lockedBy` of what it holds. */
  readonly name: string
  readonly lifecycles: readonly string[]
  /** Each announces itself every 50 s. */
  readonly seenAt: Date
  /** Seen within the last two minutes, and not stopped since. */
  readonly live: boolean
}

/**
 * The replicas that share the work, by name; one that was killed is listed until another one has noticed.
 * @example await listReplicas(system) // { replicas: [{ name: 'api-1~5f3a9c', lifecycles: ['order'], seenAt, live: true }], now }
 */
export async function listReplicas({
  db,
  models,
}: System): Promise<{ readonly replicas: readonly ReplicaState[]; readonly now: Date }> {
  const pipeline = [
    { $match: { _id: { $in: models.map(({ name }) => name) } } },
    { $project: { replicas: 1, live: PRESENT_REPLICAS, now: '$$NOW' } },
  ]
  const lifecycles = db.collection<{ _id: string }>(LIFECYCLES_COLLECTION)
  const entries = await readOwnFields((how) => lifecycles.aggregate(pipeline, how).toArray())
  const found = new Map<string, ReplicaState>()
  for (const { _id, replicas, live } of entries) {
    // A person may have put anything there.
    for (const { name, seenAt } of Array.isArray(replicas) ? replicas.filter(isReport) : []) {
      const before = found.get(name)
      found.set(name, {
        name,
        lifecycles: [...(before?.lifecycles ?? []), String(_id)],
        seenAt: before && before.seenAt > seenAt ? before.seenAt : seenAt,
        live: before?.live === true || live.includes(name),
      })
    }
  }
  const sorted = [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
  return { replicas: sorted, now: entries[0]?.['now'] ?? new Date(0) }
}

const isReport = (one: unknown): one is { name: string; seenAt: Date } => {
  const { name, seenAt } = (one ?? {}) as Record<string, unknown>
  return typeof name === 'string' && seenAt instanceof Date
}
