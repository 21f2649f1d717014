import { duration, matching, oneOf, whole } from './types.js'

/**
 * Whether rings are heard, and how: `auto` is `capped`, `off` neither rings nor listens. Where a change stream isn't available, a
 * capped collection's cursor takes its place.
 */
export const DOORBELL_MODES = ['auto', 'capped', 'changeStream', 'off'] as const
export type DoorbellMode = (typeof DOORBELL_MODES)[number]

/**
 * The options of a process that works on documents, whether from a setting (a flag or the environment), `new Replica` or
 * `PhaselockModule.forRoot`.
 */
export const processOptions = {
  name: matching("a replica's name of at most 253 characters without ~ and #", /^[^~#\s]{1,253}$/).optional(),
  doorbell: oneOf(DOORBELL_MODES).default('auto'),
  grace: duration('0s', '1h').default(10_000),
  threads: whole(1, 256).optional(),
  threadMemoryMb: whole(16, 65_536).optional(),
  blockedAfter: duration('0ms', '1m').default(200),
  clockHold: duration('0s', '1h').default(60_000),
} as const
