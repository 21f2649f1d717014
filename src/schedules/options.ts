import type { Db } from 'mongodb'
import { z } from 'zod'
import { DOORBELL_MODES, type DoorbellMode } from '../doorbell/index.js'
import type { LockProvider } from '../locks/index.js'
import type { Logger } from '../phases/index.js'
import { type Clock, type Duration, durationMs } from '../time/index.js'
import type { RunOutcome } from './documents.js'
import { InvalidSchedulesOptions } from './errors.js'
import type { ScheduleObserver } from './observer.js'
import type { Task } from './tasks.js'

export interface SchedulesOptions<Context = unknown> {
  /** Default: the database of the replica that runs the lifecycles; without one the methods throw NotAttached. */
  readonly db?: Db | undefined
  /** The tasks that this process can run, by name. Without any it only owns schedules and leaves their runs to others. */
  readonly tasks?: Readonly<Record<string, Task<Context>>> | undefined
  /** Looked up anew for each run: databases, clients, whatever is no JSON. */
  readonly context?: (() => Context | Promise<Context>) | undefined
  /** Who grants `scheduler_lock:<id>`. Default: MongoDB, in the same database. */
  readonly locks?: LockProvider | undefined
  /** Who this process is in runs and locks. Default: POD_NAME, else the host's name and the process id. */
  readonly name?: string | undefined
  /** The collections' names. Default `schedules` and `runs`. */
  readonly collections?: { readonly schedules?: string; readonly runs?: string } | undefined
  /** What a replica's crash costs at most. Default 30s. */
  readonly lockTimeout?: Duration | undefined
  /** How long the named lock of a run outlives a holder that died; extended three times as often. Default 30m. */
  readonly lockAtMostFor?: Duration | undefined
  /** How long runs are kept, all alike or by how they ended. Default 30d; Skipped and Missed 7d. */
  readonly keepFor?: Duration | Partial<Readonly<Record<RunOutcome, Duration>>> | undefined
  /** Runs at once on one replica. Default 32. */
  readonly concurrency?: number | undefined
  /** How many schedules are looked at for edits made in the database, each second. Default 1,000. */
  readonly watchPerSecond?: number | undefined
  /** `off`: replicas are not told of runs that the owner's methods ask for. Default: as the replica that it is attached to, else they are. */
  readonly doorbell?: DoorbellMode | undefined
  /** Told of runs as they start and end here, for metrics and logs. */
  readonly observer?: ScheduleObserver | undefined
  readonly logger?: Logger | undefined
  readonly clock?: Clock | undefined
}

/** The options, checked, with their defaults. */
export interface SchedulesSettings {
  readonly collections: { readonly schedules: string; readonly runs: string }
  readonly lockTimeout: Duration
  readonly lockAtMostForMs: number
  readonly keepFor: Readonly<Record<RunOutcome, Duration>>
  readonly concurrency: number
  readonly watchPerSecond: number
  readonly doorbell?: DoorbellMode | undefined
}

const duration = (least: string, most: string) =>
  z.string().superRefine((value, context) => {
    try {
      const ms = durationMs(value)
      if (ms >= durationMs(least) && ms <= durationMs(most)) return
    } catch {
      // told below
    }
    context.addIssue(`expected a duration from ${least} to ${most}, got '${value}'`)
  }) as unknown as z.ZodType<Duration>

const whole = (least: number, most: number) => {
  const expected = `expected a whole number from ${least} to ${most}`
  return z.number(expected).int(expected).min(least, expected).max(most, expected)
}

const name = z.string('expected a text').min(1, 'expected a name, got an empty text')
const keep = duration('1s', '3650d')

const schema = z.object({
  collections: z
    .strictObject({ schedules: name.default('schedules'), runs: name.default('runs') })
    .refine((value) => value.schedules !== value.runs, 'expected two names, got one twice')
    .prefault({}),
  lockTimeout: duration('1s', '24h').default('30s'),
  lockAtMostFor: duration('1s', '24h').default('30m'),
  keepFor: z
    .union([
      keep,
      z.strictObject({
        Completed: keep.optional(),
        Failed: keep.optional(),
        Skipped: keep.optional(),
        Missed: keep.optional(),
      }),
    ])
    .prefault({}),
  concurrency: whole(1, 10_000).default(32),
  watchPerSecond: whole(1, 100_000).default(1_000),
  doorbell: z.enum(DOORBELL_MODES, `expected one of ${DOORBELL_MODES.join(', ')}`).optional(),
})

const HANDLES = ['db', 'tasks', 'context', 'locks', 'name', 'observer', 'logger', 'clock']
const KEEP_FOR: Readonly<Record<RunOutcome, Duration>> = {
  Completed: '30d',
  Failed: '30d',
  Skipped: '7d',
  Missed: '7d',
}

/** @throws InvalidSchedulesOptions listing every problem */
export function readOptions<Context>(given: SchedulesOptions<Context>): SchedulesSettings {
  const known = [...HANDLES, ...Object.keys(schema.shape)]
  const problems = Object.keys(given ?? {})
    .filter((key) => !known.includes(key))
    .map((key) => `unknown option '${key}'; known: ${known.join(', ')}`)
  if (given?.db !== undefined && typeof given.db?.collection !== 'function')
    problems.push('db: expected a Db of the mongodb driver')
  if (given?.context !== undefined && typeof given.context !== 'function')
    problems.push(`context: expected a function that returns it, such as () => ({ db }), got ${typeof given.context}`)
  if (given?.observer !== undefined && (typeof given.observer !== 'object' || given.observer === null))
    problems.push(`observer: expected an object with methods such as ended(), got ${typeof given.observer}`)
  if (given?.locks !== undefined && typeof given.locks?.lock !== 'function')
    problems.push('locks: expected a lock provider, such as await openLockProvider({ url }) of phaselock/locks')
  if (given?.name !== undefined && (typeof given.name !== 'string' || given.name === ''))
    problems.push(`name: expected a text, got ${String(given.name) || 'an empty one'}`)
  if (given?.tasks !== undefined && (typeof given.tasks !== 'object' || given.tasks === null))
    problems.push(`tasks: expected { name: function }, got ${String(given.tasks)}`)
  const parsed = schema.safeParse(given ?? {})
  problems.push(...(parsed.error?.issues ?? []).map((issue) => `${issue.path.join('.')}: ${issue.message}`))
  if (!parsed.success || problems.length > 0) {
    throw new InvalidSchedulesOptions(problems)
  }
  const { keepFor, lockAtMostFor, ...rest } = parsed.data
  const kept = typeof keepFor === 'string' ? all(keepFor) : { ...KEEP_FOR, ...keepFor }
  return { ...rest, lockAtMostForMs: durationMs(lockAtMostFor), keepFor: kept as Record<RunOutcome, Duration> }
}

const all = (keepFor: Duration): Record<RunOutcome, Duration> => ({
  Completed: keepFor,
  Failed: keepFor,
  Skipped: keepFor,
  Missed: keepFor,
})
