import type { Clock } from '../../time/index.js'
import { idKey } from '../documents/id-key.js'
import type { ClaimTokens } from './token.js'

/**
 * A replica's lease on one document: the time-limited right to work on it.
 *
 * Invariant: while `leftMs() > 0`, no other replica holds the document by the server's clock (unless its owner replaced it). To
 * ensure that, the local age counts from before the claim or the last successful renewal was *sent*; `again` and checkpoints leave
 * `lockedAt` alone and so don't restart it.
 */
export class Lease {
  /** The key of its document in a Map: made once, because a document is looked up several times in each step. */
  readonly key: string
  private sentAtMs: number
  private ended = false

  constructor(
    readonly id: unknown,
    readonly claim: ClaimTokens,
    public token: string,
    public fence: number,
    claimSentAtMs: number,
    /** The time that it lasts without a renewal: the value in force when its claim or its last renewal was sent. */
    public lastsMs: number,
    private readonly clock: Clock,
  ) {
    this.key = idKey(id)
    this.sentAtMs = claimSentAtMs
  }

  /** Milliseconds since the claim or the last successful renewal was sent. */
  ageMs(): number {
    return this.clock.monotonicMs() - this.sentAtMs
  }

  /** The least number of milliseconds that this lease still lasts; 0 once it may have expired or was ended. */
  leftMs(): number {
    return this.ended ? 0 : Math.max(0, this.lastsMs - this.ageMs())
  }

  /** A renewal sent at `sentAtMs` (monotonic) succeeded: the lease lasts `lastsMs` from then on. */
  renewed(sentAtMs: number, lastsMs = this.lastsMs): void {
    if (sentAtMs < this.sentAtMs) return
    this.sentAtMs = sentAtMs
    this.lastsMs = lastsMs
  }

  /** Passes the lease to its next step: a new token, and the fence that the write has set. */
  passTo(token: string, fence: number): void {
    this.token = token
    this.fence = fence
  }

  /** Ends the lease, once recorded, lost or given up: this replica has no right to the document any more. */
  end(): void {
    this.ended = true
  }
}
