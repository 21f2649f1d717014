import { CommanderError } from 'commander'
import { UsageError } from '../operations/index.js'
import type { CliContext } from './context.js'
import { EXIT } from './errors.js'
import { Output } from './output.js'
import { buildProgram } from './program.js'
import { reportError } from './report-error.js'

/**
 * Runs one command line (without node and script) and resolves to its exit code once everything it opened is closed.
 * Errors are printed, never thrown.
 */
export async function runCli(argv: readonly string[], given: Partial<CliContext> = {}): Promise<number> {
  const context: CliContext = {
    env: process.env,
    cwd: process.cwd(),
    stdin: process.stdin,
    ...given,
    output: given.output ?? new Output(),
  }
  const json = argv.includes('--json')
  try {
    const program = await buildProgram(context, json, argv)
    await program.parseAsync(argv, { from: 'user' })
    return EXIT.ok
  } catch (error) {
    // Commander has already printed its message, or the requested help.
    if (error instanceof CommanderError && (error.exitCode === 0 || !json))
      return error.exitCode === 0 ? EXIT.ok : EXIT.usage
    const thrown = error instanceof CommanderError ? new UsageError(error.message.replace(/^error: /, '')) : error
    return reportError(thrown, context.output, json, wantsStacks(argv, context.env))
  }
}

function wantsStacks(argv: readonly string[], env: NodeJS.ProcessEnv): boolean {
  const flag = argv.find((arg) => arg.startsWith('--log-level='))?.slice('--log-level='.length)
  const next = argv.includes('--log-level') ? argv[argv.indexOf('--log-level') + 1] : undefined
  return (flag ?? next ?? env['PHASELOCK_LOG_LEVEL']) === 'debug'
}
