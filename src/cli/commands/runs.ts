import type { Command } from 'commander'
import { isOver, type ListRuns, listRuns, Refused, startRun, UsageError, waitForRun } from '../../operations/index.js'
import { numbered, typed } from '../../options/index.js'
import {
  type Json,
  type RunStatistics,
  Schedules,
  type StatisticsOf,
  type StatisticsOptions,
  type StoredRun,
} from '../../schedules/index.js'
import { formatMs } from '../../time/index.js'
import { byAndReason, byFrom } from '../by.js'
import type { CliContext, Options } from '../context.js'
import { valueText } from '../output.js'
import { limitFrom, print, timeFrom } from './command.js'
import { endText, lookAtSchedules, onSchedules, timeText, withSchedules } from './schedules.js'

const PHASES: readonly string[] = ['Queued', 'Running', 'Completed', 'Failed', 'Skipped', 'Missed']
/** The number of days in the counters' trend. */
const DAYS_SHOWN = 7
/** A run that stays queued for longer is reported. */
const TOLD_AFTER_MS = 5_000

interface RunOptions extends Options {
  readonly args?: string
  readonly wait?: true
}

export function registerRun(program: Command, context: CliContext): void {
  const command = program
    .command('run')
    .description('run a schedule once, now, on a replica that knows its task, under the same lock as its other runs')
    .argument('<schedule>', 'its id')
    .option('--args <json>', "instead of the schedule's own")
    .option('--wait', 'wait until the run is over; exit code 4 unless it is Completed')
    .action((id: string, options: RunOptions) => run(context, id, options))
  withSchedules(byAndReason(command), ['run repo_sync_42', 'run repo_sync_42 --args \'{"full":true}\' --wait'])
}

async function run(context: CliContext, id: string, options: RunOptions): Promise<void> {
  const args = options.args === undefined ? undefined : argsFrom(options.args)
  await onSchedules(context, options, async (system) => {
    const runId = await startRun(system, id, { by: byFrom(options), args })
    if (!options.wait)
      return print(context, options, { _id: runId }, `${runId} is queued; see: phaselock runs ${typed(id)}`)
    let found = await waitForRun(system, runId, TOLD_AFTER_MS)
    if (found.phase === 'Queued')
      context.output.problem(
        `${runId} is still waiting for a replica that knows the task '${found.task}'; is one running?`,
      )
    while (!isOver(found)) found = await waitForRun(system, runId, TOLD_AFTER_MS)
    print(context, options, found, `${runId} ${endText(found)}`)
    if (found.phase !== 'Completed') throw new Refused(`expected ${runId} to be Completed, it is ${found.phase}`)
  })
}

export function argsFrom(text: string): Json {
  try {
    return JSON.parse(text) as Json
  } catch (error) {
    throw new UsageError(
      `--args: expected JSON, got ${text} (${(error as Error).message}); in a shell, quote it with '...'`,
    )
  }
}

export function registerRuns(program: Command, context: CliContext): void {
  const command = program
    .command('runs')
    .description("list a schedule's runs, the latest first, with statistics; or the statistics of several schedules")
    .argument('[schedule]', 'its id')
    .option('--phase <phase>', 'only those in this phase: Queued, Running, Completed, Failed, Skipped or Missed')
    .option('--limit <n>', 'at most this many, 1 to 10000 (default: 20)', limitFrom)
    .option('--lines', "with each run's log lines")
    .option('--statistics', 'only the statistics: of the schedule, or of --task, --prefix or --all')
    .option('--task <name>', "with --statistics: those of this task's runs, of all schedules")
    .option('--prefix <text>', 'with --statistics: those of all schedules whose ids begin so')
    .option('--all', 'with --statistics: those of all runs')
    .option(
      '--since <time>',
      'with --statistics: only runs that were due since then, such as 2026-12-01T06:00:00Z',
      timeFrom,
    )
    .option('--timezone <zone>', 'for the hours and days in the statistics (default: UTC)')
    .action((id: string | undefined, options: RunsOptions) =>
      options.statistics ? statistics(context, id, options) : runs(context, id, options),
    )
  withSchedules(command, [
    'runs repo_sync_42',
    'runs repo_sync_42 --phase Failed --lines',
    'runs repo_sync_42 --json',
    'runs --statistics --task sync',
    'runs --statistics --prefix repo_sync_ --since 2026-11-01T00:00:00Z --json',
  ])
}

type RunsOptions = Options &
  ListRuns &
  Pick<StatisticsOptions, 'since'> & {
    readonly statistics?: true
    readonly task?: string
    readonly prefix?: string
    readonly all?: true
  }

/** Statistics alone, also of the runs of several schedules. */
async function statistics(context: CliContext, id: string | undefined, options: RunsOptions): Promise<void> {
  const { task, prefix, all, since, timezone, phase, limit } = options
  const named = Object.entries({ '<schedule>': id, '--task': task, '--prefix': prefix, '--all': all }).flatMap(
    ([name, value]) => (value === undefined ? [] : [name]),
  )
  if (named.length !== 1)
    throw new UsageError(
      `--statistics: expected one of <schedule>, --task, --prefix and --all, got ${named.join(' and ') || 'none'}`,
    )
  for (const [name, value] of Object.entries({ phase, limit, lines: options['lines'] }))
    if (value !== undefined) throw new UsageError(`--${name} is for the list of runs: expected none with --statistics`)
  const which = id ?? ({ task, prefix, all } as StatisticsOf)
  const found = await lookAtSchedules(context, options, async (system) => {
    const { db, collections } = system
    const counted = await new Schedules({ db, collections }).statistics(which, { since, timezone })
    if (id !== undefined && counted.runs === 0) await listRuns(system, id, { limit: 1 }) // refuses one that isn't there
    return counted
  })
  if (options.json) return context.output.json({ statistics: found })
  if (found.runs === 0) context.output.line(since ? `no runs since ${timeText(since)}` : 'no runs')
  for (const line of statisticsLines(found, id === undefined)) context.output.line(line)
}

async function runs(context: CliContext, id: string | undefined, options: RunsOptions): Promise<void> {
  const { phase, limit = 20, timezone, task, prefix, all, since } = options
  for (const [name, value] of Object.entries({ task, prefix, all, since }))
    if (value !== undefined) throw new UsageError(`--${name}: expected --statistics too, got none`)
  if (id === undefined)
    throw new UsageError('expected the id of a schedule, or --statistics with --task, --prefix or --all, got none')
  if (phase !== undefined && !PHASES.includes(phase))
    throw new UsageError(`--phase: expected one of ${PHASES.join(', ')}, got '${phase}'`)
  const { statistics, runs: found } = await lookAtSchedules(context, options, (system) =>
    listRuns(system, id, { phase, limit, timezone }),
  )
  if (options.json) return context.output.json({ statistics, runs: found })
  if (found.length === 0) context.output.line(`no ${phase ? `${phase} ` : ''}runs of ${id}`)
  else {
    context.output.table(
      ['due', 'trigger', 'try', 'by', 'ended'],
      found.map((run) => [
        timeText(run.scheduledFor),
        `${valueText(run.trigger)}${run.requestedBy ? ` (${valueText(run.requestedBy)})` : ''}`,
        `${valueText(run.attempt ?? 1)}${run.lost ? `+${valueText(run.lost)} lost` : ''}`,
        valueText(run.by ?? '-'),
        `${endText(run)}${countersText(run)}`,
      ]),
    )
  }
  if (options['lines']) {
    for (const { log } of found)
      for (const line of Array.isArray(log) ? log : [])
        context.output.line(`${timeText(line?.at)} ${valueText(line?.message ?? line)}`)
  }
  for (const line of statisticsLines(statistics)) context.output.line(line)
}

function countersText({ counters }: StoredRun): string {
  const all = Object.entries(counters ?? {}).map(([name, value]) => `${name} ${valueText(value)}`)
  return all.length > 0 ? ` (${all.join(', ')})` : ''
}

function statisticsLines(statistics: RunStatistics, isOfSeveral = false): string[] {
  const { runs: count, byOutcome, successRate, meanMs, p95Ms, failuresByHour, lost, isPart } = statistics
  if (count === 0) return []
  const outcomes = Object.entries(byOutcome).map(([outcome, n]) => `${outcome} ${n}`)
  const lines = [
    `${isPart ? 'the latest ' : ''}${numbered(count, 'run')}: ${outcomes.join(', ')}, open ${statistics.open}${lost > 0 ? `; tries lost ${lost}` : ''}`,
  ]
  if (successRate !== null) lines.push(`success rate ${(successRate * 100).toFixed(1)} %`)
  for (const [how, end] of [
    ['success', statistics.lastSuccess],
    ['failure', statistics.lastFailure],
  ] as const)
    if (end) lines.push(`last ${how} ${timeText(end.at)}${end.error ? `: ${valueText(end.error.message)}` : ''}`)
  if (meanMs !== null && p95Ms !== null) lines.push(`took ${formatMs(meanMs)} on average, p95 ${formatMs(p95Ms)}`)
  for (const { run, startedAt, by = '-' } of statistics.running)
    lines.push(`running now: ${valueText(run)} on ${valueText(by)}, since ${timeText(startedAt)}`)
  for (const { error, count: n, last } of statistics.failuresByError)
    lines.push(`failed ${numbered(n, 'time')}: ${valueText(error)}, last ${timeText(last)}`)
  // Of one schedule they are all its own.
  if (isOfSeveral)
    for (const { schedule, count: n, last } of statistics.failuresBySchedule)
      lines.push(`${valueText(schedule)} failed ${numbered(n, 'time')}, last ${timeText(last)}`)
  const hours = failuresByHour.flatMap((n, hour) => (n > 0 ? [`${String(hour).padStart(2, '0')}h ${n}`] : []))
  if (hours.length > 0) lines.push(`failures by hour: ${hours.join(', ')}`)
  for (const { day, runs, counters } of statistics.trend.slice(-DAYS_SHOWN)) {
    const sums = Object.entries(counters).map(([name, sum]) => `, ${name} ${sum}`)
    if (sums.length > 0) lines.push(`${day}: ${runs} Completed${sums.join('')}`)
  }
  return lines
}
