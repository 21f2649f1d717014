import type { Command } from 'commander'
import {
  ageToSay,
  countText,
  type LifecycleStatus,
  quietText,
  type SystemStatus,
  systemStatus,
  UsageError,
} from '../../operations/index.js'
import { formatMs, fromNow } from '../../time/index.js'
import { type CliContext, lookAtSystem, type Options } from '../context.js'
import { CliError, EXIT } from '../errors.js'
import type { Output } from '../output.js'
import { watching } from '../watch.js'
import { watchOption, withDatabase } from './command.js'
import { freshOption } from './fresh.js'

export function registerStatus(program: Command, context: CliContext): void {
  const command = program
    .command('status')
    .description('show at a glance who works, what there is to do, what waits for what, and what needs a person')
    .option('--exit-code', 'end with exit code 5 where something needs a person: for a script')
    .action(async (options: Options & { readonly exitCode?: true; readonly fresh?: true }) => {
      if (options.exitCode && options.watch)
        throw new UsageError('expected --exit-code or --watch, got both: what is watched has no end')
      const problems = await lookAtSystem(context, options, async (system) => {
        let last: SystemStatus | undefined
        await watching(context, options, async (output) => {
          last = await systemStatus(system, { fresh: options.fresh, takeMissing: true })
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
  withDatabase(watchOption(freshOption(command)), [
    'status',
    'status --watch',
    'status --fresh',
    'status --json',
    'status --exit-code',
  ])
}

/** The most problems that are listed: the table of documents has to fit the screen. */
const MOST_PROBLEMS = 15

function print(
  output: Output,
  { versions, lifecycles, causes, duties, operations, problems, now }: SystemStatus,
): void {
  const replicas = Object.entries(versions).map(([version, count]) => `${count} of ${version}`)
  for (const problem of problems.slice(0, MOST_PROBLEMS)) output.line(`!! ${problem}`)
  if (problems.length > MOST_PROBLEMS) output.line(`!! ${problems.length - MOST_PROBLEMS} more (phaselock causes)`)
  if (problems.length === 0) output.line(`nothing needs a person: ${quietText(causes.quiet, now)}`)
  output.line()
  output.line(`live replicas: ${replicas.length > 0 ? replicas.join(', ') : 'none'}`)
  output.line()
  output.table(
    ['lifecycle', 'replicas', 'documents', 'due', 'oldest due', 'held', 'sleeping', 'failing', 'asking', 'parked'],
    lifecycles.map(row),
  )
  for (const line of agesOf(lifecycles, now)) output.line(line)
  const waits = lifecycles.flatMap(({ lifecycle, census }) =>
    (census?.waits ?? []).map(({ on, phase, documents, oldest }) => [
      ...[lifecycle, phase, on, countText(documents), fromNow(oldest, now)],
    ]),
  )
  if (waits.length > 0) {
    output.line()
    output.table(['lifecycle', 'phase', 'waits for', 'documents', 'since'], waits)
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
}

/** The time of each census that isn't of this moment, and the lifecycles that none was taken of. */
function agesOf(lifecycles: readonly LifecycleStatus[], now: Date): string[] {
  const old = lifecycles.flatMap(({ lifecycle, census }) =>
    census && ageToSay(census, now) !== undefined ? [`${lifecycle} as of ${fromNow(census.at, now)}`] : [],
  )
  const none = lifecycles.flatMap(({ lifecycle, whyNone }) =>
    whyNone === null ? [] : [`${lifecycle} isn't counted: ${whyNone}`],
  )
  const lines = [...(old.length > 0 ? [old.join(', ')] : []), ...none]
  return lines.length > 0 ? [...lines, '(--fresh counts now)'] : []
}

const row = (one: LifecycleStatus): string[] => {
  const { lifecycle, replicas, census, documents, due, oldestDueSeconds, undated, held } = one
  if (!census) return [lifecycle, `${replicas}`, ...Array<string>(8).fill('-')]
  const known = oldestDueSeconds > 0 ? formatMs(Math.round(oldestDueSeconds) * 1_000) : '-'
  const oldest = undated > 0 ? `${known} (${undated} undated)` : known
  const rest = [one.sleeping, one.failing, one.asking, one.parked].map(countText)
  return [lifecycle, `${replicas}`, countText(documents), countText(due), oldest, countText({ n: held }), ...rest]
}
