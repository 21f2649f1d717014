import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { InvalidOptions, replicaIdentity, shown } from '../options/index.js'

/** ShedLock's table allows 255 characters in locked_by; a longer name is cut. */
const NAME_LENGTH = 80
/** The room left for a reentry: 87 characters go to the holder, 17 to the nonce, 1 + 140 to the reentry, 9 to `~released`. */
export const MOST_REENTRY = 140
const RELEASED = '~released'
const FREED = '~freed'
/** Matches the token of a lock released by its holder, or freed by an operator. */
export const RELEASED_TOKEN = /~(released|freed)$/

/** The identity of this process in lockedBy: its name, made unique per start. */
export function holderIdentity(name: string = process.env['POD_NAME'] || `${hostname()}-${process.pid}`): string {
  if (typeof name !== 'string')
    throw new InvalidOptions('the holder of locks', [`name: expected a string, got ${shown(name)}`])
  return replicaIdentity(name.slice(0, NAME_LENGTH).replaceAll(/[|\s]/g, '-'))
}

/**
 * The value of `lockedBy` for one acquisition, `api-7f9c~5f3a9c#d41d8cd98f00b204`, or with a reentry
 * `api-7f9c~5f3a9c#d41d8cd98f00b204|repo_sync_42@2026-11-21T06:00:00Z`.
 * Invariants: no two acquisitions share one, and everything after the first `|` is the reentry.
 */
export function acquisitionToken(identity: string, reentry: string | undefined): string {
  return `${identity}#${randomBytes(8).toString('hex')}${reentry === undefined ? '' : reentrySuffix(reentry)}`
}

/** The suffix of `lockedBy` in a lock held under this reentry, and in no other lock. */
export function reentrySuffix(reentry: string): string {
  return `|${reentry.replaceAll('%', '%25').replaceAll('|', '%7C').replaceAll('~', '%7E')}`
}

/**
 * The `lockedBy` of a lock that its holder has unlocked. While lockAtLeastFor keeps the record, a late or repeated write by the
 * holder matches nothing, and no caller re-enters.
 */
export const releasedToken = (token: string): string => `${token}${RELEASED}`

/** The `lockedBy` of a lock that an operator has freed, so that the holder's late writes match nothing. */
export const freedToken = (token: string): string => `${token.slice(0, 240)}${FREED}`

export const isReleased = (lockedBy: string | undefined): boolean =>
  lockedBy !== undefined && RELEASED_TOKEN.test(lockedBy)
