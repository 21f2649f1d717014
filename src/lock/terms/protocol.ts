import type { Document } from 'mongodb'

/**
 * The lock protocol's protections that can be removed one by one. Production code uses {@link SAFE_PROTOCOL} only;
 * `npm run chaos -- --break` removes one to show which figure then goes wrong. Not part of the API, though other types name it.
 */
export interface Protocol {
  /** The time that claims compare and writes store: the server's own, fixed when its command starts. */
  readonly now: () => '$$NOW' | Date
  /** The condition of a holder's write on the document, besides its `_id`. */
  readonly heldBy: (token: string) => Document
  /** The condition of a renewal: any token of one claim, because steps under the lease change the token in between. */
  readonly leasedBy: (replica: string, claim: number) => Document
  /** The value of `lockedBy`: unique per start of a replica, claim and step. */
  readonly tokenOf: (replica: string, claim: number, step: number) => string
  /** True if renewals are sent; a replica believes in them either way. */
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
