import type { Command } from 'commander'
import { type ListRuns, listRuns, UsageError } from '../../operations/index.js'
import type { RunStatistics, StoredRun } from '../../schedules/index.js'
import { formatMs } from '../../time/index.js'
import type { CliContext, Options } from '../context.js'
import { valueText } from '../output.js'
import { limitFrom } from './command.js'
import { endText, lookAtSchedules, timeText, withSchedules } from './schedules.js'

const PHASES: readonly string[] = ['Queued', 'Running', 'Completed', 'Failed', 'Skipped', 'Missed']
/** Days in the counters' trend. */
const DAYS_SHOWN = 7

export function registerRuns(program: Command, context: CliContext): void {
  const command = program
    .command('runs')
    .description("list a schedule's runs, the latest first, with statistics")
    .argument('<schedule>', 'its id')
    .option('--phase <phase>', 'only those in this phase: Queued, Running, Completed, Failed, Skipped or Missed')
    .option('--limit <n>', 'at most this many, 1 to 10000', limitFrom, 20)
    .option('--lines', "with each run's log lines")
    .option('--timezone <zone>', 'for the hours and days in the statistics (default: UTC)')
    .action((id: string, options: Options & ListRuns) => runs(context, id, options))
  withSchedules(command, ['runs repo_sync_42', 'runs repo_sync_42 --phase Failed --lines', 'runs repo_sync_42 --json'])
}

async function runs(context: CliContext, id: string, options: Options & ListRuns): Promise<void> {
  const { phase, limit, timezone } = options
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

function statisticsLines(statistics: RunStatistics): string[] {
  const { runs: count, byOutcome, successRate, meanMs, p95Ms, failuresByError, failuresByHour, lost } = statistics
  if (count === 0) return []
  const outcomes = Object.entries(byOutcome).map(([outcome, n]) => `${outcome} ${n}`)
  const lines = [
    `${count} runs: ${outcomes.join(', ')}, open ${statistics.open}${lost > 0 ? `; tries lost ${lost}` : ''}`,
  ]
  if (successRate !== null) lines.push(`success rate ${(successRate * 100).toFixed(1)} %`)
  if (meanMs !== null && p95Ms !== null) lines.push(`took ${formatMs(meanMs)} on average, p95 ${formatMs(p95Ms)}`)
  for (const { error, count: n, last } of failuresByError)
    lines.push(`failed ${n} times: ${valueText(error)}, last ${timeText(last)}`)
  const hours = failuresByHour.flatMap((n, hour) => (n > 0 ? [`${String(hour).padStart(2, '0')}h ${n}`] : []))
  if (hours.length > 0) lines.push(`failures by hour: ${hours.join(', ')}`)
  for (const { day, runs, counters } of statistics.trend.slice(-DAYS_SHOWN)) {
    const sums = Object.entries(counters).map(([name, sum]) => `, ${name} ${sum}`)
    if (sums.length > 0) lines.push(`${day}: ${runs} Completed${sums.join('')}`)
  }
  return lines
}
