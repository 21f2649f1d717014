import * as t from './types.js'

/**
 * The ways to ring and to listen: `auto` is `capped`, `off` neither rings nor listens. If a change stream isn't available, a
 * capped collection's cursor takes its place.
 */
export const DOORBELL_MODES = ['auto', 'capped', 'changeStream', 'off'] as const
/**
 * The way replicas learn of new documents between their ticks: a capped collection (`auto`, `capped`), change streams, or not at all
 * (docs/doorbell.md).
 */
export type DoorbellMode = (typeof DOORBELL_MODES)[number]

/**
 * The options of a process that works on documents, whether from a setting (a flag or the environment), `new Replica` or
 * `PhaselockModule.forRoot`.
 */
export const processOptions = {
  name: t.optional(t.matching("a replica's name of at most 253 characters without ~ and #", /^[^~#\s]{1,253}$/)),
  doorbell: t.withDefault(t.oneOf(DOORBELL_MODES), 'auto'),
  grace: t.withDefault(t.duration('0s', '1h'), '10s'),
  concurrency: t.optional(t.whole(1, 10_000)),
  threads: t.optional(t.whole(1, 256)),
  threadMemoryMb: t.optional(t.whole(16, 65_536)),
  blockedAfter: t.withDefault(t.duration('0ms', '1m'), '200ms'),
  clockHold: t.withDefault(t.duration('0s', '1h'), '60s'),
  beatEvery: t.withDefault(t.duration('0s', '10m'), '10s'),
  sweepEvery: t.withDefault(t.duration('0s', '10m'), '5m'),
  appVersion: t.optional(t.matching('a version of 1 to 100 characters', /^\S(.{0,98}\S)?$/)),
  tickEvery: t.withDefault(t.duration('1s', '10s'), '1s'),
} as const
