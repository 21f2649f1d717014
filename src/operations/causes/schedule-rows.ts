import { typed } from '../../options/index.js'
import { causeOfError } from '../../phases/index.js'
import type { FoundCause } from './row.js'

/** What a schedule's document says of itself; any client may have stored other values there. */
export interface ScheduleSeen {
  readonly _id: unknown
  readonly phase?: unknown
  readonly broken?: unknown
  readonly nextRunAt?: unknown
  readonly lastSuccess?: { readonly at?: unknown } | null
  readonly lastFailure?: {
    readonly at?: unknown
    readonly run?: unknown
    readonly error?: { readonly name?: unknown; readonly message?: unknown } | null
  } | null
}

/** A run is late that nobody has begun for so long after it was due. */
export const LATE_MS = 120_000
const LONGEST_TEXT = 200

/** The rows of schedules that can't run, whose last run failed, or whose next run is late. */
export const scheduleRows = (schedules: readonly ScheduleSeen[], now: Date): FoundCause[] =>
  schedules.flatMap((one) => scheduleRow(one, now))

function scheduleRow(
  { _id, phase, broken, nextRunAt, lastSuccess, lastFailure }: ScheduleSeen,
  now: Date,
): FoundCause[] {
  if (typeof _id !== 'string') return []
  const row = (what: string, text: string, since: Date | null, command: string, preview: string): FoundCause => ({
    ...{ kind: 'schedule', key: [_id, what], text: `schedule ${_id} ${text}`, documents: null, trend: 'unknown' },
    ...{ oldest: since, firstSeen: since, lastSeen: since, ids: [_id], versions: [] },
    action: () => ({ command, preview }),
  })
  const all = 'phaselock schedules'
  const id = typed(_id)
  if (phase === 'Broken')
    return [row('broken', `can't run: ${textOf(broken)}`, null, `${all} set ${id} ...`, `${all} --phase Broken`)]
  const failedAt = dateOf(lastFailure?.at)
  const succeededAt = dateOf(lastSuccess?.at)
  const failed =
    failedAt && (!succeededAt || failedAt > succeededAt)
      ? [
          row(
            `failed ${causeOfError({ message: errorText(lastFailure?.error) }).cause}`,
            `failed: ${errorText(lastFailure?.error)}`,
            failedAt,
            `phaselock run ${id}`,
            `phaselock runs ${id}`,
          ),
        ]
      : []
  const next = dateOf(nextRunAt)
  const isLate = phase === 'Active' && next !== undefined && now.getTime() - next.getTime() > LATE_MS
  const late = isLate
    ? [
        row(
          'late',
          `was due at ${next.toISOString()}, and no replica has begun it`,
          next,
          'phaselock start',
          'phaselock replicas',
        ),
      ]
    : []
  return [...failed, ...late]
}

const dateOf = (value: unknown): Date | undefined =>
  value instanceof Date && !Number.isNaN(value.getTime()) ? value : undefined

/** The first line of a text that any client may have stored. */
const textOf = (value: unknown): string =>
  typeof value === 'string' ? value.split('\n')[0]!.slice(0, LONGEST_TEXT) : 'nobody knows why'

function errorText(error: NonNullable<ScheduleSeen['lastFailure']>['error'] | undefined): string {
  const message = textOf(error?.message)
  return typeof error?.name === 'string' ? `${error.name}: ${message}` : message
}
