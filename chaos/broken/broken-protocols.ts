import { type Protocol, SAFE_PROTOCOL } from '../../dist/lock/index.js'
import type { Clock } from '../../dist/time/index.js'

/** The protections that `--break` removes, with what is missing then. */
export const BREAKABLE = {
  'unlock-by-id': 'a holder writes by _id alone, without its token',
  'client-clock':
    "replicas use their own clocks, not the server's, and one of them runs ahead by twice the lock timeout",
  'no-renew': 'leases are not renewed, though the replicas believe so',
  'no-token': 'all holders write the same lockedBy',
} as const

export type Breakable = keyof typeof BREAKABLE

export const isBreakable = (name: string): name is Breakable => Object.hasOwn(BREAKABLE, name)

const SAME_FOR_ALL = 'locked'

/** The lock protocol without one of its protections, only to show that each of them is needed. */
export function brokenProtocol(what: Breakable, clock: Clock): Protocol {
  switch (what) {
    case 'unlock-by-id':
      return { ...SAFE_PROTOCOL, heldBy: () => ({}) }
    case 'client-clock':
      return { ...SAFE_PROTOCOL, now: () => clock.now() }
    case 'no-renew':
      return { ...SAFE_PROTOCOL, sendsRenewals: false }
    case 'no-token':
      return { ...SAFE_PROTOCOL, tokenOf: () => SAME_FOR_ALL, leasedBy: () => ({ lockedBy: SAME_FOR_ALL }) }
  }
}

/** A clock whose wall time runs ahead; its monotonic time is correct. */
export const clockAhead = (clock: Clock, aheadMs: number): Clock => ({
  now: () => new Date(clock.now().getTime() + aheadMs),
  monotonicMs: () => clock.monotonicMs(),
})
