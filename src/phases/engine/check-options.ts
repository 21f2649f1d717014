import { z } from 'zod'
import { requireNode } from '../../config/index.js'
import type { Protocol } from '../../lock/index.js'
import {
  aDatabase,
  aFunction,
  anything,
  expecting,
  having,
  oneOf,
  processOptions,
  readOptions,
  shown,
} from '../../options/index.js'
import type { Clock } from '../../time/index.js'
import { InvalidReplicaOptions } from '../errors.js'
import type { Logger } from '../logger.js'
import type { ThreadPool } from '../threads/index.js'
import type { ReplicaObserver } from './observer.js'
import type { ReplicaOptions, RunnableLifecycle } from './replica-options.js'
import type { Alongside } from './wake/alongside.js'

/** What replicas run. A definition is easily taken for it. */
export const runnableLifecycles = z.array(
  z.custom<RunnableLifecycle>(
    (value) => typeof value === 'object' && value !== null && 'attach' in value && 'handlers' in value,
    {
      error: ({ input }) =>
        typeof (input as { handle?: unknown } | null)?.handle === 'function'
          ? `expected a lifecycle with its handlers, got the definition of '${(input as { name?: unknown }).name}': call its handle({ ... }) and give what that returns`
          : `expected a lifecycle with its handlers (\`lifecycle.handle({ ... })\`), got ${shown(input)}`,
    },
  ),
  expecting('a list of lifecycles with their handlers (`lifecycle.handle({ ... })`)'),
)

/** What `new Replica` and `PhaselockModule.forRoot` both take. */
export const sharedOptions = {
  ...processOptions,
  indexes: oneOf(['create', 'check']).default('create'),
  alongside: z.array(aFunction() as z.ZodType<Alongside>, expecting('a list of functions')).default([]),
  logger: having<Logger>(['debug', 'info', 'warn', 'error'], 'an object with debug, info, warn and error').optional(),
  observer: z
    .custom<ReplicaObserver | readonly ReplicaObserver[]>(
      (value) => [value].flat().every((one) => typeof one === 'object' && one !== null),
      expecting("an object with an observer's methods, or a list of them"),
    )
    .optional(),
} as const

const replicaOptions = z.strictObject({
  db: aDatabase,
  lifecycles: runnableLifecycles,
  ...sharedOptions,
  renewalDb: aDatabase.optional(),
  ownerDb: aDatabase.optional(),
  doorbellDb: aDatabase.optional(),
  clock: anything as z.ZodType<Clock | undefined>,
  random: aFunction().optional() as z.ZodType<(() => number) | undefined>,
  onBadPlan: oneOf(['warn', 'refuse']).default('warn'),
  threadPool: anything as z.ZodType<ThreadPool | undefined>,
  protocol: anything as z.ZodType<Protocol | undefined>,
} satisfies { readonly [option in keyof Required<ReplicaOptions>]: z.ZodType })

/** The options, checked, with their defaults: durations in milliseconds. */
export type ReplicaSettings = z.output<typeof replicaOptions>

/** @throws InvalidReplicaOptions for unknown options, and for values with which a replica would stand still or misbehave; UnsupportedNode */
export function checkOptions(options: ReplicaOptions): ReplicaSettings {
  requireNode()
  const read = readOptions(replicaOptions, options, {
    internal: ['threadPool', 'protocol'],
    renamed: { graceMs: 'grace', blockedAfterMs: 'blockedAfter', clockHoldMs: 'clockHold' },
  })
  if ('problems' in read) throw new InvalidReplicaOptions(read.problems)
  return read.options
}
