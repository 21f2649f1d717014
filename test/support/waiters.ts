import { type LimitLeases, SlotWaiter } from '../../src/phases/engine/limits/limit-leases.js'

const waiters = new WeakMap<LimitLeases, Map<string, SlotWaiter>>()

/** The phase of this name as one that waits for slots of a replica. */
export function waiterOf(slots: LimitLeases, name: string): SlotWaiter {
  const own = waiters.get(slots) ?? new Map<string, SlotWaiter>()
  const waiter = own.get(name) ?? new SlotWaiter()
  waiters.set(slots, own.set(name, waiter))
  return waiter
}
