import { isReleased } from '../acquisition.js'
import type { LockRecord } from '../lock-provider.js'
import type { Granted } from '../lock-store.js'

/** A row of ShedLock's table, with its numbers as text: milliseconds since 1970, and the fence. */
export type SqlRow = Record<'name' | 'locked_by' | 'at' | 'until' | 'fence', string | null>

export const grantedIn = ({ at, until, fence }: SqlRow): Granted => ({
  lockedAt: new Date(Number(at)),
  lockUntil: new Date(Number(until)),
  fence: Number(fence),
})

/** @param held true if the lock is held, as the server judges it */
export function recordIn(row: SqlRow, held: boolean): LockRecord {
  return {
    name: row.name!,
    lockedBy: row.locked_by ?? undefined,
    lockedAt: new Date(Number(row.at)),
    lockUntil: new Date(Number(row.until)),
    fence: row.fence === null ? undefined : Number(row.fence),
    held,
    released: isReleased(row.locked_by ?? undefined),
  }
}
