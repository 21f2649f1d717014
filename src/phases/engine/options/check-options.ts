import { requireNode } from '../../../config/index.js'
import { processOptions, readOptions, shown, t } from '../../../options/index.js'
import type { Clock } from '../../../time/index.js'
import type { Alongside } from '../../background/background.js'
import { InvalidReplicaOptions } from '../../errors/errors.js'
import type { Logger } from '../../reporting/logger.js'
import type { ReplicaObserver } from '../../reporting/observer.js'
import type { ThreadPool } from '../../threads/index.js'
import type { SharedSemaphore } from '../concurrency/shared-semaphore.js'
import type { ReplicaOptions, RunnableLifecycle } from './replica-options.js'

/** The lifecycles that replicas run. A definition is easily taken for one. */
export const runnableLifecycles = t.list(
  t.where<RunnableLifecycle>(
    (value) => typeof value === 'object' && value !== null && 'attach' in value && 'handlers' in value,
    (value) =>
      typeof (value as { handle?: unknown } | null)?.handle === 'function'
        ? `expected a lifecycle with its handlers, got the definition of '${(value as { name?: unknown }).name}': call its handle({ ... }) and give what that returns`
        : `expected a lifecycle with its handlers (\`lifecycle.handle({ ... })\`), got ${shown(value)}`,
  ),
  t.expecting('a list of lifecycles with their handlers (`lifecycle.handle({ ... })`)'),
)

const NONE =
  'expected at least one lifecycle with its handlers, got an empty list: without any there is nothing to work on'

/** The same, with at least one lifecycle. */
export const someLifecycles = t.checked(runnableLifecycles, ({ length }) => length > 0, NONE)

/** The options that `new Replica` and `PhaselockModule.forRoot` both take. */
export const sharedOptions = {
  ...processOptions,
  indexes: t.withDefault(t.oneOf(['create', 'check']), 'create'),
  alongside: t.withDefault(t.list(t.aFunction<Alongside>(), t.expecting('a list of functions')), []),
  logger: t.optional(
    t.having<Logger>(['debug', 'info', 'warn', 'error'], 'an object with debug, info, warn and error'),
  ),
  observer: t.optional(
    t.where<ReplicaObserver | readonly ReplicaObserver[]>(
      (value) => [value].flat().every((one) => typeof one === 'object' && one !== null),
      t.expecting("an object with an observer's methods, or a list of them"),
    ),
  ),
} as const

const replicaOptions = t.object({
  db: t.aDatabase,
  lifecycles: runnableLifecycles,
  ...sharedOptions,
  renewalDb: t.optional(t.aDatabase),
  ownerDb: t.optional(t.aDatabase),
  doorbellDb: t.optional(t.aDatabase),
  clock: t.anything<Clock>(),
  random: t.optional(t.aFunction<() => number>()),
  onBadPlan: t.withDefault(t.oneOf(['warn', 'refuse']), 'warn'),
  threadPool: t.anything<ThreadPool>(),
  sharedSemaphore: t.anything<SharedSemaphore>(),
  mayBeIdle: t.optional(t.flag),
} satisfies t.TypesOf<ReplicaOptions>)

/** The options, checked, with their defaults: durations in milliseconds. */
export type ReplicaSettings = t.ValueOf<typeof replicaOptions>

/** @throws InvalidReplicaOptions for unknown options, and for values that would make a replica stand still or misbehave; UnsupportedNode */
export function checkOptions(options: ReplicaOptions): ReplicaSettings {
  requireNode()
  const read = readOptions(replicaOptions, options, {
    internal: ['threadPool', 'sharedSemaphore', 'mayBeIdle'],
    renamed: {
      graceMs: 'grace',
      blockedAfterMs: 'blockedAfter',
      clockHoldMs: 'clockHold',
      beatEveryMs: 'beatEvery',
      sweepEveryMs: 'sweepEvery',
    },
  })
  const isIdle = Array.isArray(options?.lifecycles) && options.lifecycles.length === 0 && options.mayBeIdle !== true
  const problems = [...('problems' in read ? read.problems : []), ...(isIdle ? [`lifecycles: ${NONE}`] : [])]
  if ('problems' in read || isIdle) throw new InvalidReplicaOptions(problems)
  return read.options
}
