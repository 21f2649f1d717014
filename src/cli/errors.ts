/** Exit codes of every command; docs/cli.md explains them. */
export const EXIT = { ok: 0, failure: 1, usage: 2, notFound: 3, refused: 4, found: 5, interrupted: 130 } as const
export type ExitCode = (typeof EXIT)[keyof typeof EXIT]

/** An error of a command, with its exit code. */
export abstract class CliError extends Error {
  abstract readonly exitCode: ExitCode
}

/** `--lifecycles` names something that isn't a list of lifecycles. */
export class InvalidLifecyclesModule extends CliError {
  override readonly name = 'InvalidLifecyclesModule'
  override readonly exitCode = EXIT.usage
  constructor(module: string, problem: string, options?: ErrorOptions) {
    super(
      `--lifecycles ${module}: expected a module whose default export is an array of lifecycles (lifecycle.handle({...})), ` +
        `or a function of { db, client } that returns one; ${problem}`,
      options,
    )
  }
}

/** The module of `--lifecycles`, or the function that it exports, throws. Its own error is the cause, with its stack. */
export class LifecyclesModuleFailed extends CliError {
  override readonly name = 'LifecyclesModuleFailed'
  override readonly exitCode = EXIT.failure
  constructor(module: string, cause: unknown) {
    const where = cause instanceof SyntaxError ? ` (node --check ${module} shows where)` : ''
    const thrown = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause)
    super(`--lifecycles ${module}: expected a module that can be loaded, but it throws${where}:\n${thrown}`, { cause })
  }
}

/** The port of `--http` can't be listened on. */
export class PortUnavailable extends CliError {
  override readonly name = 'PortUnavailable'
  override readonly exitCode = EXIT.failure
  constructor(host: string, port: number, reason: string) {
    super(
      `expected to listen on ${host}:${port}, got ${reason}; choose another --http port (0: any free one) or --http-host`,
    )
  }
}

/** `check` has found something and has not repaired it. */
export class FindingsLeft extends CliError {
  override readonly name = 'FindingsLeft'
  override readonly exitCode = EXIT.found
  constructor(left: number, repairable: number) {
    super(
      `expected nothing to be found, got ${left} finding${left === 1 ? '' : 's'}${repairable > 0 ? `; phaselock check --repair repairs ${repairable}` : ''}`,
    )
  }
}

/** `orphans` could not look somewhere, or found something that it may not remove. */
export class OrphansMissed extends CliError {
  override readonly name = 'OrphansMissed'
  override readonly exitCode = EXIT.failure
  constructor(places: number, failed: number) {
    const problems = [
      places > 0 ? `${places} cluster${places === 1 ? '' : 's'} could not be asked` : '',
      failed > 0 ? `${failed} object${failed === 1 ? '' : 's'} could not be removed` : '',
    ]
    super(`expected to look everywhere and to remove what was found: ${problems.filter(Boolean).join(', ')}`)
  }
}
