import type { Command } from 'commander'
import {
  abortBackfill,
  beginBackfill,
  listBackfills,
  NotFound,
  previewBackfill,
  resumeBackfill,
  UsageError,
} from '../../operations/index.js'
import { numbered, typed } from '../../options/index.js'
import type { BackfillOptions, BackfillState } from '../../schedules/index.js'
import { formatMs } from '../../time/index.js'
import { byAndReason, byFrom } from '../by.js'
import type { CliContext, Options } from '../context.js'
import { valueText } from '../output.js'
import { printTable, watchingSystem } from '../watch.js'
import { countFrom, isYes, limitFrom, merged, print, timeFrom, watchOption } from './command.js'
import { argsFrom } from './runs.js'
import { lookAtSchedules, onSchedules, timeText, withSchedules } from './schedules.js'

export function registerBackfills(program: Command, context: CliContext): void {
  const command = program
    .command('backfills')
    .description('list backfills of schedules: how far each is, how fast, how long it still takes')
    .option('--limit <n>', 'at most this many, 1 to 10000', limitFrom, 100)
    .action((options: Options & { limit: number }) =>
      watchingSystem(context, lookAtSchedules, options, async (system, output) => {
        const found = await listBackfills(system, { limit: options.limit })
        printTable(output, options, found, {
          none: 'no backfills; to begin one: phaselock backfills run',
          columns: ['schedule', 'from', 'to', 'is', 'over', 'failed', 'skipped', 'an hour', 'left', 'by'],
          row,
        })
      }),
    )
  withSchedules(watchOption(command), [
    'backfills',
    'backfills run nightly --from 2026-11-01T00:00:00Z --dry-run',
    'backfills abort nightly',
  ])
  registerRun(command, context)
  registerShow(command, context)
  registerEnd(command, context, 'resume', 'let a backfill go on whose runs were deleted, or ended by an older version')
  registerEnd(command, context, 'abort', 'let no further run of a backfill begin; those that run go on')
}

interface RunFlags extends Options {
  readonly from: Date
  readonly to?: Date
  readonly again?: string
  readonly args?: string
  readonly atMost?: number
  readonly concurrency?: number
  readonly dryRun?: true
  readonly overlap?: string
  readonly reason?: string
}

function registerRun(backfills: Command, context: CliContext): void {
  const command = backfills
    .command('run')
    .description('run each due time of a past range, the oldest first, on replicas that know the task')
    .argument('<schedule>', 'its id')
    .requiredOption('--from <time>', 'the first due time, such as 2026-11-01T00:00:00Z', timeFrom)
    .option('--to <time>', 'the last due time (default: now)', timeFrom)
    .option(
      '--again <which>',
      'failed: due times whose runs have Failed, too; all: Completed ones as well (default: those that no run has begun for)',
    )
    .option('--args <json>', "instead of the schedule's own")
    .option('--concurrency <n>', "runs at the same time, at most the schedule's maxInstances (default: 1)", countFrom)
    .option(
      '--overlap <what>',
      'wait or skip: what a run does while another one of the schedule, or what that has started, goes on (default: wait)',
    )
    .option('--at-most <n>', 'refuse if more are to run, up to 10000 (default: 1000)', countFrom)
    .option('--dry-run', 'only show what would be done')
    .option('--yes', 'do it without asking')
    .action(async (id: string, _options: RunFlags, sub: Command) => {
      const options = merged(sub) as RunFlags
      await onSchedules(context, options, async (system) => {
        const request = requestFrom(options)
        const preview = await previewBackfill(system, id, request)
        const { runs, dueTimes, first, last } = preview
        const question = `run ${runs} of ${numbered(dueTimes, 'due time')} of ${id}`
        const lines = first && last ? [`the first: ${timeText(first)}, the last: ${timeText(last)}`] : []
        if (options.dryRun)
          return print(context, options, preview, [question, ...lines, 'nothing was changed'].join('\n'))
        if (runs > 0 && !options.yes && !(await isYes(context, options, lines, question)))
          throw new UsageError(`expected yes, or --yes, to ${question}; nothing was changed`)
        const begun = await beginBackfill(system, id, request)
        print(
          context,
          options,
          begun,
          `${id}: ${numbered(begun.runs, 'run is', 'runs are')} to come; see: phaselock backfills`,
        )
      })
    })
  withSchedules(byAndReason(command), [
    'backfills run nightly --from 2026-11-01T00:00:00Z --dry-run',
    'backfills run nightly --from 2026-11-01T00:00:00Z --to 2026-11-10T00:00:00Z --again failed --reason "the archive was down" --yes',
  ])
}

function requestFrom({
  from,
  to,
  again,
  overlap,
  concurrency,
  atMost,
  reason,
  args,
  ...options
}: RunFlags): BackfillOptions {
  if (again !== undefined && again !== 'failed' && again !== 'all')
    throw new UsageError(`--again: expected failed or all, got '${again}'`)
  if (overlap !== undefined && overlap !== 'wait' && overlap !== 'skip')
    throw new UsageError(`--overlap: expected wait or skip, got '${overlap}'`)
  const given = args === undefined ? undefined : argsFrom(args)
  return { from, to, again, overlap, concurrency, atMost, reason, args: given, by: byFrom(options) }
}

const row = (one: BackfillState): string[] => [
  ...[valueText(one.schedule), timeText(one.from), timeText(one.to), one.condition],
  ...[`${one.over} of ${one.runs}`, `${one.counts.Failed || '-'}`, `${one.counts.Skipped || '-'}`],
  one.perHour === undefined ? '-' : one.perHour < 10 ? one.perHour.toFixed(1) : `${Math.round(one.perHour)}`,
  ...[one.leftMs === undefined ? '-' : formatMs(one.leftMs), valueText(one.by ?? '-')],
]

function registerShow(backfills: Command, context: CliContext): void {
  const command = backfills
    .command('show')
    .description("show a schedule's latest backfill: its range, how far it is, and how its runs ended")
    .argument('<schedule>', 'its id')
    .action((id: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      return lookAtSchedules(context, options, async (system) => {
        const [found] = await listBackfills(system, { schedule: id })
        if (!found) throw new NotFound(`${id} has no backfill`, undefined, 'see: phaselock backfills run --help')
        const { output } = context
        if (options.json) return output.json(found)
        const { condition, over, runs, from, to, counts, leftMs, again, by, why, at } = found
        output.line(
          `${id}: ${condition}; ${over} of ${numbered(runs, 'run is', 'runs are')} over${leftMs ? `, ${formatMs(leftMs)} left` : ''}`,
        )
        output.line(`  due times from ${timeText(from)} to ${timeText(to)}${again ? `, again: ${again}` : ''}`)
        const ends = Object.entries(counts).map(([phase, n]) => `${phase} ${n}`)
        if (ends.length > 0) output.line(`  ${ends.join(', ')}`)
        output.line(`  begun ${timeText(at)}${by ? ` by ${valueText(by)}` : ''}${why ? `: ${valueText(why)}` : ''}`)
        if (condition === 'Stopped')
          output.line(`  runs of it are gone; go on with: phaselock backfills resume ${typed(id)}`)
      })
    })
  withSchedules(command)
}

function registerEnd(backfills: Command, context: CliContext, name: 'resume' | 'abort', description: string): void {
  const command = backfills
    .command(name)
    .description(description)
    .argument('<schedule>', 'its id')
    .action(async (id: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      const done = name === 'abort' ? 'aborted' : 'resumed'
      await onSchedules(context, options, (system) =>
        name === 'abort' ? abortBackfill(system, id, byFrom(options)) : resumeBackfill(system, id),
      )
      print(context, options, { schedule: id, [done]: true }, `the backfill of ${id} is ${done}`)
    })
  withSchedules(byAndReason(command))
}
