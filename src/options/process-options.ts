import { duration, matching, oneOf, whole } from './types.js'

/**
 * Whether rings are heard, and how: `auto` chooses by what the server is; `off` neither rings nor listens.
 * Where a change stream can't be had, a capped collection's cursor is tried, also when a change stream was asked for.
 */
export const DOORBELL_MODES = ['auto', 'capped', 'changeStream', 'off'] as const
export type DoorbellMode = (typeof DOORBELL_MODES)[number]

/**
 * What a process that works on documents is given, whoever gives it: a setting (from a flag or the environment), `new Replica`
 * or `PhaselockModule.forRoot`.
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
