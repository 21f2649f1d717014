/** Settings that can't be used. Lists every problem, each with what was expected, what was given and what to do. */
export class InvalidSettings extends Error {
  override readonly name = 'InvalidSettings'
  constructor(readonly problems: readonly string[]) {
    super(
      `${problems.length === 1 ? 'a setting' : `${problems.length} settings`} can't be used:\n` +
        problems.map((problem) => `  - ${problem}`).join('\n'),
    )
  }
}
