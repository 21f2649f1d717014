import type { DocumentName } from '../../lock/index.js'
import type { Duration } from '../../time/index.js'

/** Phases of one document that a step waits for: made by a lifecycle's `at`. */
export interface DocumentPhases extends DocumentName {
  /** The phases, one of which the document must be in. */
  readonly phases: readonly string[]
}

/** The options for waiting for another document. */
export interface WaitForOptions {
  /** The time that the document sleeps at most before it looks again, in case the other one's move isn't reported. Default 1m. */
  readonly recheck?: Duration | undefined
}

/** The position of another document that a step waits for. */
export interface Reached {
  /** True once it is in one of the phases. Until then: `return step.wait(there.text)`, and the document is woken when it is. */
  readonly done: boolean
  /** The phase that it is in; undefined: there is no such document. */
  readonly phase: string | undefined
  /** For people: `order o-1 is in Packing, not in Shipped`. */
  readonly text: string
}
