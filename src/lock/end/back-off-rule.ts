/** How long documents sleep between looks, and after errors. */
export interface BackOffRule {
  /** A waiting document sleeps for this share of the time that it has waited so far. */
  readonly share: number
  /** Once it has waited for longer than this, it sleeps for a whole lockTimeout each time. */
  readonly patienceMs: number
  /** The pause after the first error in a row; doubled with each further one. */
  readonly firstErrorMs: number
  /** The longest pause after an error. */
  readonly longestErrorMs: number
}

/** A tenth of the time waited, up to two minutes; errors: 1 s, 2 s, 4 s, ... 5 min. */
export const DEFAULT_BACK_OFF: BackOffRule = {
  share: 0.1,
  patienceMs: 120_000,
  firstErrorMs: 1_000,
  longestErrorMs: 300_000,
}
