/** A document that no replica would ever work on, or that would be stored as something other than it is. Nothing was inserted. */
export class InvalidDocument extends Error {
  override readonly name = 'InvalidDocument'
  constructor(
    readonly lifecycle: string,
    readonly phase: unknown,
    readonly known: readonly string[],
    problem = `expected a phase of ${lifecycle} (${known.join(', ')}), got ${JSON.stringify(phase)}`,
  ) {
    super(`${problem}; nothing was inserted`)
  }
}
