import type { Document } from 'mongodb'
import { claimUpdate, firstClaimUpdate, neverClaimed } from '../../src/lock/claim/claim-commands.js'
import { endFilter, endUpdate } from '../../src/lock/end/end-update.js'
import {
  type EndKind,
  endLeasesOf,
  type Lease,
  removeFinal,
  renameUpdate,
  ruleUpdate,
  type StateRule,
  type Terms,
  uncountClaims,
} from '../../src/lock/index.js'
import { leaseUnmoved, renewUpdate, underClaim } from '../../src/lock/lease/lease.js'
import { dueIn } from '../../src/lock/lease/lease-state.js'
import { captured, type Write } from './captured.js'

/** The only document of a model. */
export const ID = 'x'

export interface End {
  readonly kind: EndKind
  readonly token: string
  readonly nextToken: string | null
  readonly set?: Document
  readonly stale?: readonly string[]
  readonly pauseMs?: number
  readonly wakeBy?: Date | null
}

const leaseOn = (token: string) => ({ id: ID, token }) as unknown as Lease

/**
 * The writes of the lock protocol on one document, as the product builds them: filters and updates come from `src/lock`, so that a
 * model which interprets them can't drift from the code.
 */
export const COMMANDS = {
  claim: (terms: Terms, phase: string, token: string): Write => ({
    filter: { _id: ID, ...dueIn(terms, phase) },
    update: claimUpdate(terms, token),
  }),

  firstClaim: (terms: Terms, phase: string, token: string): Write => ({
    filter: { _id: ID, ...dueIn(terms, phase), ...neverClaimed(terms, phase) },
    update: firstClaimUpdate(terms, token),
  }),

  end: (terms: Terms, { kind, token, nextToken, set, stale = [], pauseMs, wakeBy = null }: End): Write => {
    const members = [{ lease: leaseOn(token), end: kind, ms: 5, set, stale, pauseMs, wakeBy }]
    const group = { token, end: kind, nextToken, members }
    return { filter: { _id: ID, ...endFilter(terms, group) }, update: endUpdate(terms, group) }
  },

  renew: (terms: Terms, replica: string, claim: number): Write => ({
    filter: {
      _id: { $in: [ID] },
      ...underClaim(replica, claim),
      ...leaseUnmoved(terms),
      ...(terms.validUntil && { $and: [{ $expr: { $lte: ['$$NOW', terms.validUntil] } }] }),
    },
    update: renewUpdate(terms),
  }),

  rule: (terms: Terms, rule: StateRule): Write => {
    const [filter, update] = ruleUpdate(terms, rule, [ID])
    return { filter, update }
  },

  rename: (terms: Terms, from: string, to: string): Write => {
    const [filter, update] = renameUpdate(terms, { from, to }, [ID])
    return { filter, update }
  },
} as const

/** The deletion of a final document, and the update by which one that came there by hand begins to wait. */
export const removalOf = (terms: Terms, phase: string, keepForMs: number): Promise<Write[]> =>
  captured(
    (collection) =>
      removeFinal(collection, terms, { phase, keepForMs, limit: 1, dueBound: new Date(), random: () => 0 }),
    [{ _id: ID }],
  )

/** The claim of a step that is stopped in order isn't counted. */
export const uncountOf = async (terms: Terms, token: string): Promise<Write> =>
  (await captured((collection) => uncountClaims(collection, terms, [leaseOn(token)])))[0]!

/** The end of a dead replica's leases, by a command that has read the server's time at `now`. */
export async function recoveryOf(terms: Terms, phases: readonly string[], replica: string, now: Date): Promise<Write> {
  const registered = { _id: 'thing', lockTimeout: terms.lockTimeoutMs, now }
  const leased = (collection: Parameters<Parameters<typeof captured>[0]>[0]) =>
    endLeasesOf(collection.db, { lifecycle: 'thing', collection, phases, terms }, replica)
  return (await captured(leased, [registered]))[0]!
}
