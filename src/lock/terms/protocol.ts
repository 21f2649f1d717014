import type { Document } from 'mongodb'

/**
 * The protections of the lock protocol that can be taken away one by one. Production code uses {@link SAFE_PROTOCOL} only;
 * `npm run chaos -- --break` takes one away to show which figure then goes wrong. No part of the API, though other types name it.
 */
export interface Protocol {
  /** The time that claims compare and writes store: the server's own, fixed when its command starts. */
  readonly now: () => '$$NOW' | Date
  /** What a holder's write requires of the document, beside its `_id`. */
  readonly heldBy: (token: string) => Document
  /** What a renewal requires: any token of one claim, as the steps under a lease change it in between. */
  readonly leasedBy: (replica: string, claim: number) => Document
  /** The value of `lockedBy`: unique per start of a replica, claim and step. */
  readonly tokenOf: (replica: string, claim: number, step: number) => string
  /** Whether renewals are sent; a replica believes in them either way. */
  readonly sendsRenewals: boolean
}

export const SAFE_PROTOCOL: Protocol = {
  now: () => '$$NOW',
  heldBy: (token) => ({ lockedBy: token }),
  // '/' is the character after '.': the range holds `replica#claim.<any step>` and nothing else.
  leasedBy: (replica, claim) => ({ lockedBy: { $gte: `${replica}#${claim}.`, $lt: `${replica}#${claim}/` } }),
  tokenOf: (replica, claim, step) => `${replica}#${claim}.${step}`,
  sendsRenewals: true,
}
