/** A document that no replica would ever work on. */
export class InvalidDocument extends Error {
  override readonly name = 'InvalidDocument'
  constructor(
    readonly lifecycle: string,
    readonly phase: unknown,
    readonly known: readonly string[],
  ) {
    super(`expected a phase of ${lifecycle} (${known.join(', ')}), got ${JSON.stringify(phase)}; nothing was inserted`)
  }
}
