import type { Document } from 'mongodb'

/** How rings get to a listener. */
export type DoorbellKind = 'capped' | 'changeStream'

/** One way to hear. Both read the same collection, so a ringer needn't know who listens, or how. */
export interface RingSource {
  readonly kind: DoorbellKind
  /**
   * Begins to listen; resolves when everything stored from now on will be heard. Earlier rings won't be.
   * @throws DoorbellUnavailable and what the driver throws
   */
  open(): Promise<OpenSource>
}

export interface OpenSource {
  /**
   * Waits for entries, half a minute at most, then returns none. What is stored between two calls comes with the next.
   * @throws NotHeard when it has ended, and what the driver throws; it is of no use after that
   */
  next(): Promise<Document[]>
  /** Also ends a wait. Never throws. */
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
