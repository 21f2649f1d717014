import type { System } from '../operations/index.js'
import { sleep } from '../time/index.js'
import type { CliContext, lookAtSystem, Options } from './context.js'
import type { Output } from './output.js'

const EVERY_MS = 1_000

/**
 * Shows the findings of a command, once; with `--watch` again and again until Ctrl-C or until its reader is gone. On a terminal each
 * time replaces the one before; elsewhere they follow one another, and `--json` prints one value on one line each time.
 */
export async function watching(
  { output }: CliContext,
  options: Options,
  look: (output: Output) => Promise<void>,
): Promise<void> {
  if (!options.watch) return look(output)
  const stopped = new AbortController()
  const stop = () => stopped.abort()
  process.once('SIGINT', stop).once('SIGTERM', stop)
  try {
    for (let first = true; !stopped.signal.aborted && !output.isClosed; first = false) {
      if (options.json) await look(output)
      else await output.frame(look, first)
      await sleep(EVERY_MS, stopped)
    }
  } finally {
    process.off('SIGINT', stop).off('SIGTERM', stop)
  }
}

/** Looks at a system as {@link watching} does. @param look what opens it */
export const watchingSystem = (
  context: CliContext,
  look: typeof lookAtSystem,
  options: Options,
  show: (system: System, output: Output) => Promise<void>,
): Promise<void> => look(context, options, (system) => watching(context, options, (output) => show(system, output)))

/** Prints what was found: with `--json` as it is, else as a table, or that there is nothing. */
export function printTable<T>(
  output: Output,
  { json }: Options,
  found: readonly T[],
  { none, columns, row }: { none: string; columns: readonly string[]; row: (one: T) => readonly string[] },
): void {
  if (json) output.json(found)
  else if (found.length === 0) output.line(none)
  else output.table(columns, found.map(row))
}
