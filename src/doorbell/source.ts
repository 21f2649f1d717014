import type { Document } from 'mongodb'

/** How a deployment brings rings to a listener. */
export type DoorbellKind = 'capped' | 'changeStream'

/** One way to hear. Both read the same collection: who rings need not know who listens, or how. */
export interface RingSource {
  readonly kind: DoorbellKind
  /**
   * Begins to listen; resolves when whatever is stored from now on will be heard. Rings of before are not.
   * @throws DoorbellUnavailable and what the driver throws
   */
  open(): Promise<OpenSource>
}

export interface OpenSource {
  /**
   * Waits for entries, half a minute at most: then there are none. What is stored between two calls comes with the next.
   * @throws NotHeard when it has ended, and what the driver throws; then it is of no more use
   */
  next(): Promise<Document[]>
  /** Ends a wait too. Never throws. */
  close(): Promise<void>
}

/** The server has ended a cursor without an error. */
export class NotHeard extends Error {
  override readonly name = 'NotHeard'
  constructor(kind: DoorbellKind) {
    super(
      `expected the ${kind === 'capped' ? 'tailable cursor' : 'change stream'} to stay open, the server has ended it`,
    )
  }
}
