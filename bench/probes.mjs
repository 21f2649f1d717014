import { lifecycleOf } from '../dist/index.js'

export const PROBES = 'Probes'
export const PROBES_LOCK_TIMEOUT_MS = 30_000

/** The lifecycle of `latency` and `memory`, without its handlers: owners use it too. */
export const probes = lifecycleOf().define({
  name: 'probes',
  collection: PROBES,
  phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
  lockTimeout: `${PROBES_LOCK_TIMEOUT_MS}ms`,
})

/**
 * The machine's monotonic clock in milliseconds: the same for all processes (CLOCK_MONOTONIC on Linux), so that moments of
 * an owner and of a replica can be compared.
 */
export const monotonicMs = () => Number(process.hrtime.bigint()) / 1e6

/** Documents whose outcome's way to the server is timed: their `_id` is a text that begins so. */
export const TIMED = 'timed-'
