import { typed } from '../../options/index.js'
import type { Census, TroubleGroup } from '../../phases/index.js'
import { type ListedPause, pausedText } from '../pauses/change.js'
import { idTyped } from '../system/document-id.js'
import type { CauseAction, FoundCause } from './row.js'

/** How often a cause was recorded, by the sums that replicas send. */
export interface CauseFlow {
  /** The number of its records in the last hour. */
  readonly n: number
  /** These by minute, the oldest first; minutes without any are 0. */
  readonly byMinute: readonly number[]
  readonly versions: readonly string[]
}

/** What is known of one lifecycle's documents. */
export interface DocumentsSeen {
  readonly census: Census
  /** By cause; one of which the replicas that count haven't sent anything is absent only where others don't count. */
  readonly flow: ReadonlyMap<string, CauseFlow> | undefined
  readonly pauses: readonly ListedPause[]
  /** The server's time. */
  readonly now: Date
}

/** An error repeats if this many documents have it now, or if it was recorded this often in the last hour. */
export const REPEATS_FROM = 3
/** Without flow, one of fewer documents repeats if it was recorded again this long after it was first seen. */
const REPEATS_AFTER_MS = 60_000
/** A question is near its deadline this long before it. */
export const NEAR_MS = 3_600_000
/** The census counts a document as overdue this long after it came due. */
const OVERDUE_AFTER_MS = 60_000

/** The rows of one lifecycle's documents. */
export function documentRows({ census, flow, pauses, now }: DocumentsSeen): FoundCause[] {
  const { _id: lifecycle, at } = census
  const seen = { lastSeen: at, trend: 'unknown', versions: [] } as const
  const list = `phaselock list ${typed(lifecycle)}`
  const errors = census.errors
    .filter((one) => repeats(one, flow?.get(one.cause)))
    .map((one) => troubleRow(lifecycle, one, flow?.get(one.cause), 'error'))
  const parks = census.parks.map((one) => troubleRow(lifecycle, one, flow?.get(one.cause), 'park'))
  // Documents without a phase are in both lists.
  const idsWithout = (phase: string) =>
    census.broken.find(({ field, found }) => field === 'phase' && phase === `(${found})`)?.ids ?? []
  const unknown = census.phases
    .filter(({ kind, documents }) => kind === 'unknown' && documents.n > 0)
    .map(({ phase, documents }): FoundCause => {
      const migrate = `phaselock operations run migrate --lifecycle ${typed(lifecycle)} --phase ${typed(phase)} --to-phase ...`
      return {
        ...{ kind: 'unknown-phase', key: [phase], lifecycle, phase, documents, ...seen },
        text: `whose phase the lifecycle doesn't have: ${phase}`,
        ...{ oldest: null, firstSeen: null, ids: three(idsWithout(phase)) },
        action: isName(phase) ? dryRun(migrate) : always('phaselock check --repair', 'phaselock check'),
      }
    })
  const shapes = census.broken.filter(({ field }) => field !== 'phase')
  const broken = shapes.map(
    ({ field, found, documents, ids }): FoundCause => ({
      ...{ kind: 'broken', key: [field, found], lifecycle, documents, ids: three(ids), ...seen },
      text: `whose ${field} can't be used: it is ${found}`,
      ...{ oldest: null, firstSeen: null },
      action: always('phaselock check --repair', 'phaselock check'),
    }),
  )
  const overdue = census.overdue.map((one): FoundCause => {
    const { phase, documents, why, limit, oldest, ids } = one
    return {
      ...{
        kind: 'overdue',
        key: [phase, why, limit ?? ''],
        lifecycle,
        phase,
        term: TERMS[why],
        documents,
        oldest,
        ...seen,
      },
      text: `due in ${phase} for over a minute: ${overdueText(lifecycle, one, pauses)}`,
      ...{ firstSeen: new Date(oldest.getTime() + OVERDUE_AFTER_MS), ids: three(ids) },
      action: always(...OVERDUE[why](lifecycle, phase, limit)),
    }
  })
  const loops = census.loops.map(
    ({ phase, documents, ids }): FoundCause => ({
      ...{ kind: 'loop', key: [phase], lifecycle, phase, documents, ids: three(ids), ...seen },
      text: `taking step after step in ${phase} without progress`,
      ...{ oldest: null, firstSeen: null },
      action: always(
        `phaselock pause ${typed(lifecycle)} --phase ${typed(phase)} --reason ...`,
        `${list} --phase ${typed(phase)}`,
      ),
    }),
  )
  const { givenUp, ids: untold } = census.callbacks
  const callbacks: FoundCause = {
    ...{ kind: 'callbacks', key: [], lifecycle, documents: givenUp, ids: three(untold), ...seen },
    ...{ text: 'with callbacks that were given up', oldest: null, firstSeen: null },
    action: always(`phaselock callbacks retry ${first(untold)}`, `phaselock callbacks ${typed(lifecycle)}`),
  }
  const { nearestDeadline, documents: asking, ids: asked } = census.questions
  const isNear = nearestDeadline instanceof Date && nearestDeadline.getTime() - now.getTime() <= NEAR_MS
  const question: FoundCause = {
    ...{
      kind: 'question',
      key: [nearestDeadline?.toISOString() ?? ''],
      lifecycle,
      documents: asking,
      ids: three(asked),
      ...seen,
    },
    text: `asking; the nearest deadline ${nearestDeadline && nearestDeadline > now ? 'is' : 'was'} ${nearestDeadline?.toISOString()}`,
    ...{ oldest: null, firstSeen: null },
    action: always(`phaselock answer ${first(asked)} ...`, `phaselock questions ${typed(lifecycle)}`),
  }
  return [
    ...unknown,
    ...broken,
    ...overdue,
    ...parks,
    ...errors,
    ...loops,
    ...(givenUp.n > 0 ? [callbacks] : []),
    ...(isNear && asking.n > 0 ? [question] : []),
  ]
}

/** True if an error is more than a first try that failed, which is tried again anyway. */
export const repeats = ({ documents, firstSeen, newest }: TroubleGroup, flow: CauseFlow | undefined): boolean =>
  documents.n >= REPEATS_FROM ||
  (flow?.n ?? 0) >= REPEATS_FROM ||
  newest.getTime() - firstSeen.getTime() >= REPEATS_AFTER_MS

function troubleRow(
  lifecycle: string,
  { cause, text, phases, documents, oldest, newest, firstSeen, ids }: TroubleGroup,
  flow: CauseFlow | undefined,
  kind: 'error' | 'park',
): FoundCause {
  const run = `phaselock operations run ${kind === 'error' ? 'wake' : 'unpark'} --lifecycle ${typed(lifecycle)} --cause ${cause}`
  return {
    ...{ kind, key: [cause], lifecycle, cause, documents, oldest, firstSeen, lastSeen: newest, ids: three(ids) },
    phase: phases.length === 1 ? phases[0] : undefined,
    text: `${kind === 'error' ? 'failing' : 'parked'} in ${phases.join(', ')}: ${text}`,
    trend: trendOf(flow),
    versions: flow?.versions ?? [],
    action: (id) => dryRun(`${run} --for ${id}`)(),
  }
}

/** The minutes of each half that a trend compares. */
const HALF = 15
/** Fewer records than this make no trend. */
const LEAST_DIFFERENCE = 3

/** The last quarter of an hour against the one before it: half as much again, or a third less. */
export function trendOf(flow: Pick<CauseFlow, 'byMinute'> | undefined): FoundCause['trend'] {
  if (!flow) return 'unknown'
  const sum = (some: readonly number[]) => some.reduce((all, one) => all + one, 0)
  const late = sum(flow.byMinute.slice(-HALF))
  const early = sum(flow.byMinute.slice(-2 * HALF, -HALF))
  if (Math.abs(late - early) < LEAST_DIFFERENCE) return 'steady'
  return late >= early * 1.5 ? 'rising' : early >= late * 1.5 ? 'falling' : 'steady'
}

type Overdue = Census['overdue'][number]

function overdueText(lifecycle: string, { phase, why, limit }: Overdue, pauses: readonly ListedPause[]): string {
  if (why === 'limit') return limit === undefined ? 'they wait for a slot' : `they wait for a slot of ${limit}`
  if (why === 'busy') return 'replicas are busy, or they refuse writes'
  if (why === 'unhandled') return 'no live replica handles it'
  const own = pauses.filter(
    (one) => one.what !== 'limit' && one.lifecycle === lifecycle && (one.what !== 'phase' || one.phase === phase),
  )
  const named = own.filter(({ what }) => what !== 'document').map((one) => `${pausedText(one)} by ${one.by}`)
  return `paused${named.length > 0 ? `: ${named.slice(0, 3).join('; ')}` : ''}`
}

/** The terms by the names that `phaselock why` gives them; busy ones may lack a replica with room, or refuse writes. */
const TERMS: Readonly<Record<Overdue['why'], string | undefined>> = {
  ...{ paused: 'pause', limit: 'limit', unhandled: 'replica', busy: undefined },
}

type Commands = readonly [command: string, preview: string]
const OVERDUE: Readonly<Record<Overdue['why'], (lifecycle: string, phase: string, limit?: string) => Commands>> = {
  paused: (lifecycle) => [`phaselock resume ${typed(lifecycle)}`, `phaselock pauses ${typed(lifecycle)}`],
  limit: (_lifecycle, _phase, limit) => [
    `phaselock limits set ${limit ? typed(limit) : '...'} ...`,
    'phaselock limits',
  ],
  busy: () => ['phaselock start', 'phaselock replicas'],
  unhandled: () => ['phaselock start', 'phaselock replicas'],
}

/** A command with `--dry-run`. */
const dryRun =
  (command: string): (() => CauseAction) =>
  () => ({ command, preview: `${command} --dry-run` })
const always =
  (...[command, preview]: Commands): (() => CauseAction) =>
  () => ({ command, preview })

/** The first document, as it is typed. */
const first = ([id]: readonly unknown[]): string => (id === undefined ? '...' : idTyped(id))
const three = (ids: readonly unknown[]): readonly unknown[] => ids.slice(0, 3)
/** A phase such as `(missing)` stands for documents that have none. */
const isName = (phase: string): boolean => !phase.startsWith('(')
