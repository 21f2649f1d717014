import type { Command } from 'commander'
import { type LifecycleStatus, type SystemStatus, systemStatus, UsageError } from '../../operations/index.js'
import { formatMs, fromNow } from '../../time/index.js'
import { type CliContext, lookAtSystem, type Options } from '../context.js'
import { CliError, EXIT } from '../errors.js'
import type { Output } from '../output.js'
import { watching } from '../watch.js'
import { watchOption, withDatabase } from './command.js'

export function registerStatus(program: Command, context: CliContext): void {
  const command = program
    .command('status')
    .description('show at a glance who works, what there is to do, what waits for what, and what needs a person')
    .option('--exit-code', 'end with exit code 5 where something needs a person: for a script')
    .action(async (options: Options & { readonly exitCode?: true }) => {
      if (options.exitCode && options.watch)
        throw new UsageError('expected --exit-code or --watch, got both: what is watched has no end')
      const problems = await lookAtSystem(context, options, async (system) => {
        let last: SystemStatus | undefined
        await watching(context, options, async (output) => {
          last = await systemStatus(system)
          if (options.json) output.json(last)
          else print(output, last)
        })
        return last?.problems.length ?? 0
      })
      if (options.exitCode && problems > 0)
        throw new CliError(
          'NeedsPerson',
          EXIT.found,
          `expected nothing to need a person, got ${problems} problem${problems === 1 ? '' : 's'}`,
        )
    })
  withDatabase(watchOption(command), ['status', 'status --watch', 'status --json', 'status --exit-code'])
}

function print(output: Output, { versions, lifecycles, duties, operations, problems, now }: SystemStatus): void {
  const replicas = Object.entries(versions).map(([version, count]) => `${count} of ${version}`)
  output.line(`live replicas: ${replicas.length > 0 ? replicas.join(', ') : 'none'}`)
  output.line()
  output.table(
    ['lifecycle', 'replicas', 'documents', 'due', 'oldest due', 'held', 'sleeping', 'asking', 'parked'],
    lifecycles.map(row),
  )
  const waits = lifecycles.flatMap(({ lifecycle, swept, sweptAt }) =>
    (swept?.waiting ?? []).map(({ on, documents }) => [
      lifecycle,
      on,
      `${documents}`,
      sweptAt ? fromNow(sweptAt, now) : '-',
    ]),
  )
  if (waits.length > 0) {
    output.line()
    output.table(['lifecycle', 'waits for', 'documents', 'counted'], waits)
  }
  if (operations.running > 0) {
    output.line()
    output.line(`operations that run: ${operations.running} (phaselock operations)`)
  }
  if (duties.length > 0) {
    output.line()
    output.table(
      ['duty', 'every', 'last', 'took', 'by'],
      duties.map(({ name, everyMs, begunAt, tookMs, by }) => [
        ...[name, formatMs(everyMs), fromNow(begunAt, now), tookMs === null ? '-' : formatMs(tookMs), by],
      ]),
    )
  }
  output.line()
  if (problems.length === 0) output.line('nothing needs a person')
  for (const problem of problems) output.line(`!! ${problem}`)
}

const row = (one: LifecycleStatus): string[] => {
  const { lifecycle, replicas, documents, due, oldestDueSeconds, undated, held, sleeping, asking, parked } = one
  const known = oldestDueSeconds > 0 ? formatMs(Math.round(oldestDueSeconds) * 1_000) : '-'
  const oldest = undated > 0 ? `${known} (${undated} undated)` : known
  return [lifecycle, ...[replicas, documents, due].map(String), oldest, ...[held, sleeping, asking, parked].map(String)]
}
