/** A source of rows that can't be imported as it is. */
export class UnusableSource extends Error {
  override readonly name = 'UnusableSource'
  constructor(
    /** The expectation, the finding and the remedy. */
    readonly problem: string,
    options?: ErrorOptions,
  ) {
    super(problem, options)
  }
}

/** There are no such rows, or their import hasn't ended. */
export class NoRows extends Error {
  override readonly name = 'NoRows'
  constructor(
    /** The name that the import was given. */
    readonly rows: string,
    problem: string,
  ) {
    super(problem)
  }
}

/**
 * Throw it for a row that no repetition will mend: it is quarantined with its number and cells, and the loop goes on with the next one. Any other error
 * is a failed attempt at this row.
 * @example if (!row.email) throw new BadRow('email: expected an address, got none')
 */
export class BadRow extends Error {
  override readonly name = 'BadRow'
}

/** The place of a loop outside of a lifecycle has expired, or was never begun: it doesn't begin again at row 1 by itself. */
export class LoopExpired extends Error {
  override readonly name = 'LoopExpired'
  constructor(
    /** The session of the loop. */
    readonly session: string,
  ) {
    super(
      `expected the loop of the session ${session} to have a place, got none: it has expired, has ended, or was never begun; begin it again at a row of your choice: beginRows(..., { at: 1 })`,
    )
  }
}
