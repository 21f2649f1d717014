/** Exit codes of every command; docs/cli.md explains them. */
export const EXIT = { ok: 0, failure: 1, usage: 2, notFound: 3, refused: 4, found: 5, interrupted: 130 } as const
export type ExitCode = (typeof EXIT)[keyof typeof EXIT]

/** An error of a command, with its exit code. */
export class CliError extends Error {
  constructor(
    override readonly name: string,
    readonly exitCode: ExitCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

/** `--lifecycles` names something that has no lifecycles, or none that a replica can run. */
export class InvalidLifecyclesModule extends CliError {
  constructor(module: string, expected: string, problem: string, options?: ErrorOptions) {
    super('InvalidLifecyclesModule', EXIT.usage, `--lifecycles ${module}: expected ${expected}; ${problem}`, options)
  }
}
