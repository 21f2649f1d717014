import type { DocumentName } from '../../lock/index.js'
import type { Duration } from '../../time/index.js'

/** Phases of one document that a step waits for: made by a lifecycle's `at`. */
export interface DocumentPhases extends DocumentName {
  /** It is there once it is in one of these. */
  readonly phases: readonly string[]
}

/** How a step waits for another document. */
export interface WaitForOptions {
  /** How long the document sleeps at most before it looks again, should the move of the other one not be told. Default 1m. */
  readonly recheck?: Duration | undefined
}

/** Whether another document is where a step wants it. */
export interface Reached {
  /** Whether it is in one of the phases; without it: `return step.wait(there.text)`, and the document is woken when it is. */
  readonly reached: boolean
  /** The phase that it is in; undefined: there is no such document. */
  readonly phase: string | undefined
  /** For people: `order o-1 is in Packing, not in Shipped`. */
  readonly text: string
}
