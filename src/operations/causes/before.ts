import type { AuditEntry } from '../../phases/index.js'
import type { ReplicaState } from '../inspect/replicas.js'
import { type ListedPause, pausedText } from '../pauses/change.js'
import type { Change, FoundCause } from './row.js'

/** A change counts for a cause that was first seen within this time after it. */
export const BEFORE_MS = 600_000
/** The most changes of one cause: the newest. */
export const MOST_CHANGES = 5

/** What changes are looked for in. */
export interface ChangeSources {
  /** Entries that are about no single document. */
  readonly audit: readonly Pick<AuditEntry, 'at' | 'by' | 'action' | 'target' | 'lifecycle' | 'outcome'>[]
  readonly replicas: readonly ReplicaState[]
  readonly pauses: readonly ListedPause[]
  /** Changes with a date that the entries of lifecycles keep: of the lockTimeout, and of definitions. */
  readonly entries: readonly { readonly at: Date; readonly lifecycle: string; readonly what: string }[]
}

/** What decides which changes count for a cause. */
export type Dated = Pick<FoundCause, 'lifecycle' | 'firstSeen' | 'oldest'>

/** The time in which a cause's changes are looked for; undefined: nobody knows when it began. */
export function windowOf({ firstSeen, oldest }: Dated): { readonly from: Date; readonly to: Date } | undefined {
  const to = firstSeen ?? oldest
  return to === null ? undefined : { from: new Date(to.getTime() - BEFORE_MS), to }
}

/** What changed in the ten minutes before a cause was first seen, the newest first. A change of another lifecycle alone doesn't count. */
export function changesBefore(row: Dated, sources: ChangeSources): Change[] {
  const window = windowOf(row)
  if (!window) return []
  const isIn = (at: Date) => at >= window.from && at <= window.to
  const isOwn = (lifecycle: string | undefined) =>
    lifecycle === undefined || row.lifecycle === undefined || lifecycle === row.lifecycle
  const audit = sources.audit
    .filter(
      ({ lifecycle, outcome, action }) =>
        isOwn(lifecycle) && outcome !== 'refused' && outcome !== 'unchanged' && !action.startsWith('causes '),
    )
    .map(
      ({ at, by, action, target }): Change => ({
        at,
        by,
        what: target === undefined ? action : `${action}: ${target}`,
      }),
    )
  // An action that the audit has too is said once.
  const inAudit = new Set(audit.map(({ at, by }) => `${by} ${Math.round((at?.getTime() ?? 0) / 1_000)}`))
  const pauses = sources.pauses
    .filter((one) => isOwn(one.what === 'limit' ? undefined : one.lifecycle))
    .filter(
      ({ by, since }) =>
        ![-1, 0, 1].some((second) => inAudit.has(`${by} ${Math.round(since.getTime() / 1_000) + second}`)),
    )
    .map((one): Change => ({ at: one.since, by: one.by, what: `pause: ${pausedText(one)}` }))
  const entries = sources.entries
    .filter(({ lifecycle }) => isOwn(lifecycle))
    .map(({ at, lifecycle, what }): Change => ({ at, by: null, what: `${lifecycle}: ${what}` }))
  const all = [...audit, ...pauses, ...entries, ...startsOf(sources.replicas, row)]
  const within = all.filter((one): one is Change & { at: Date } => one.at !== null && isIn(one.at))
  return within.sort((a, b) => b.at.getTime() - a.at.getTime()).slice(0, MOST_CHANGES)
}

/**
 * The starts of replicas with another version, or another graph of the row's lifecycle, than one that had started before. With none from before there is nothing to
 * compare with: the start is said, and that what ran before is unknown.
 */
function startsOf(replicas: readonly ReplicaState[], { lifecycle }: Dated): Change[] {
  const known = replicas.flatMap((one) => {
    const runsIt = lifecycle === undefined || one.lifecycles.some(({ name }) => name === lifecycle)
    return one.startedAt && runsIt ? [{ name: one.name, startedAt: one.startedAt, runs: runOf(one, lifecycle) }] : []
  })
  return known.flatMap(({ name, startedAt, runs }): Change[] => {
    const earlier = known.filter((one) => one.startedAt < startedAt)
    if (earlier.some((one) => one.runs === runs)) return []
    const others = [...new Set(earlier.map((one) => one.runs))].join(', ')
    const before = others === '' ? 'what ran before is unknown' : `others run ${others}`
    return [{ at: startedAt, by: null, what: `${name} started with ${runs}; ${before}` }]
  })
}

/** What a replica runs, as far as it says so: the app's version, else Phaselock's own, and the graph of a lifecycle. */
export function runOf(replica: ReplicaState, lifecycle: string | undefined): string {
  const { version, appVersion, lifecycles } = replica
  const one = lifecycles.find(({ name }) => name === lifecycle) as { readonly graph?: string } | undefined
  const own = appVersion ?? (version === undefined ? 'an unknown version' : `Phaselock ${version}`)
  return one?.graph === undefined ? own : `${own}, graph ${one.graph}`
}
