import { Interrupted } from '../../dist/cli/demo/clean-ups.js'
import type { Judgement, Verdict } from './judgement.ts'
import { Screen } from './screen.ts'

/** The exit codes of verdicts. 2 is the exit code of every command for an unknown option. */
const EXIT_OF = { shown: 0, off: 1, 'not shown': 3 } as const satisfies Record<Verdict, number>
const EXIT_INTERRUPTED = 130
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

export interface Shown {
  readonly result: Judgement
  readonly text: string
  /** With `json`: evidence for figures that are off or weren't shown, on standard error. */
  readonly evidence?: readonly string[]
}

/**
 * Runs a demo until it is over or a signal comes, and prints its report. Resolves to its exit code.
 * @param name the command, for messages
 * @param json prints one JSON object instead of the text
 * @param things the things that the bar counts
 */
export async function show(
  name: string,
  json: boolean,
  run: (screen: Screen, signal: AbortSignal) => Promise<Shown>,
  things = 'gateways',
): Promise<number> {
  const interrupted = new AbortController()
  const interrupt = () => interrupted.abort()
  for (const signal of SIGNALS) process.on(signal, interrupt)
  const screen = new Screen(undefined, undefined, things)
  try {
    const { result, text, evidence = [] } = await run(screen, interrupted.signal)
    screen.end()
    process.stdout.write(json ? `${JSON.stringify(result)}\n` : `\n${text}`)
    if (json && evidence.length > 0) process.stderr.write(`${evidence.join('\n')}\n`)
    return EXIT_OF[result.verdict]
  } catch (error) {
    screen.end()
    const isInterrupted = error instanceof Interrupted
    const verdict: Verdict = 'not shown'
    const exitCode = isInterrupted ? EXIT_INTERRUPTED : EXIT_OF[verdict]
    const { name: kind, message } = error as Error
    if (json) process.stdout.write(`${JSON.stringify({ verdict, error: { name: kind, message, exitCode } })}\n`)
    else process.stderr.write(`${name}: ${isInterrupted ? '' : 'could not be shown: '}${message}\n`)
    return exitCode
  } finally {
    for (const signal of SIGNALS) process.off(signal, interrupt)
  }
}
