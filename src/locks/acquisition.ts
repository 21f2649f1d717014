import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { InvalidOptions, replicaIdentity, shown } from '../options/index.js'

/** ShedLock's table takes 255 characters in locked_by; a longer name is cut. */
const NAME_LENGTH = 80
/** What then still fits: 87 characters of the holder, 17 of the nonce, 1 + 140 of the reentry, 9 of `~released`. */
export const MOST_REENTRY = 140
const RELEASED = '~released'
const FREED = '~freed'
/** A token of a lock that its holder has released, or an operator has freed. */
export const RELEASED_TOKEN = /~(released|freed)$/

/** Who this process is in lockedBy: its name, made unique per start. */
export function holderIdentity(name: string = process.env['POD_NAME'] || `${hostname()}-${process.pid}`): string {
  if (typeof name !== 'string')
    throw new InvalidOptions('the holder of locks', [`name: expected a string, got ${shown(name)}`])
  return replicaIdentity(name.slice(0, NAME_LENGTH).replaceAll(/[|\s]/g, '-'))
}

/**
 * The value of `lockedBy` for one acquisition, `api-7f9c~5f3a9c#d41d8cd98f00b204`, or with a reentry
 * `api-7f9c~5f3a9c#d41d8cd98f00b204|repo_sync_42@2026-11-21T06:00:00Z`.
 * Invariant: no two acquisitions share one, and what follows the first `|` is the whole reentry.
 */
export function acquisitionToken(identity: string, reentry: string | undefined): string {
  return `${identity}#${randomBytes(8).toString('hex')}${reentry === undefined ? '' : reentrySuffix(reentry)}`
}

/** The `lockedBy` of a lock held under this reentry, and of no other, ends with this. */
export function reentrySuffix(reentry: string): string {
  return `|${reentry.replaceAll('%', '%25').replaceAll('|', '%7C').replaceAll('~', '%7E')}`
}

/**
 * What `lockedBy` becomes when its holder unlocks: while lockAtLeastFor keeps the record, a late or repeated write of the
 * holder's matches nothing, and nobody re-enters.
 */
export const releasedToken = (token: string): string => `${token}${RELEASED}`

/** What `lockedBy` becomes when an operator frees the lock, so that the holder's late writes match nothing. */
export const freedToken = (token: string): string => `${token.slice(0, 240)}${FREED}`

export const isReleased = (lockedBy: string | undefined): boolean =>
  lockedBy !== undefined && RELEASED_TOKEN.test(lockedBy)
