import type { Document } from 'mongodb'

/** The name, the claim and the step in a token, for people: `api-x2k~5f3a9c#1842.3`. */
export function parseToken(token: string): { replica: string; name: string; claim: number; step: number } | undefined {
  const match = /^((.*)~[^~#]*)#(\d+)\.(\d+)$/.exec(token)
  if (!match) return undefined
  return { replica: match[1]!, name: match[2]!, claim: Number(match[3]), step: Number(match[4]) }
}

/** Matches any step's token of a claim. '/' is the character after '.': the range holds `replica#claim.<any step>` and nothing else. */
export const underClaim = (replica: string, claim: number): Document => ({
  lockedBy: { $gte: `${replica}#${claim}.`, $lt: `${replica}#${claim}/` },
})

/** Matches any token of the claim that a document was read under. A token in no known form matches only itself; no token matches nothing. */
export function underClaimOf(lockedBy: string | undefined): Document {
  const token = lockedBy === undefined ? undefined : parseToken(lockedBy)
  if (token) return underClaim(token.replica, token.claim)
  return { lockedBy: lockedBy ?? { $in: [] } }
}

/**
 * A replica that claims, with the number of its claims so far. All of its lifecycles share one: they share its identity, and may
 * share a collection, so they must not give out the same token twice.
 */
export class Claimant {
  private claims = 0

  constructor(readonly identity: string) {}

  nextClaim(): ClaimTokens {
    this.claims += 1
    return new ClaimTokens(this.identity, this.claims)
  }
}

/**
 * One claim by a replica, of one document or of a batch. Invariant: it never gives out the same value twice, and no other
 * claim of any replica gives out one of its values. So a token names one step, and a write that arrives late, twice, or
 * after its own resend matches nothing.
 */
export class ClaimTokens {
  private step = 0
  readonly token: string

  constructor(
    readonly replica: string,
    readonly number: number,
  ) {
    this.token = this.nextToken()
  }

  nextToken(): string {
    this.step += 1
    return `${this.replica}#${this.number}.${this.step}`
  }
}
