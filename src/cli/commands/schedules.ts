import type { Command } from 'commander'
import {
  type ListSchedules,
  listSchedulePauses,
  listSchedules,
  pauseSchedules,
  removeSchedule,
  resumeSchedules,
  type System,
  setSchedule,
  UsageError,
} from '../../operations/index.js'
import { numbered } from '../../options/index.js'
import type { ListedPause, ListedSchedule, StoredRun } from '../../schedules/index.js'
import { formatMs } from '../../time/index.js'
import { byAndReason, byFrom, byOption, reasonOption } from '../by.js'
import { type CliContext, lookAtDatabase, type Options, onDatabase } from '../context.js'
import { valueText } from '../output.js'
import { SCHEDULE_SETTINGS } from '../setting-options.js'
import { documentFrom, limitFrom, merged, print, shortTime, timeFrom, withDatabase } from './command.js'

export function registerSchedules(program: Command, context: CliContext): void {
  const command = program
    .command('schedules')
    .description('list schedules with their next run, how the last one ended, and why broken ones are broken')
    .option('--phase <phase>', 'only those in this phase: Active, Paused, Finished or Broken')
    .option('--after <id>', 'only those after this id')
    .option('--limit <n>', 'at most this many, 1 to 10000', limitFrom, 100)
    .action((options: Options & ListSchedules) => list(context, options))
  withSchedules(command, [
    'schedules',
    'schedules --phase Broken --json',
    'schedules set repo_sync_42 \'{"task":"repository-sync","cron":"0 */6 * * *","timezone":"Asia/Seoul"}\'',
    'schedules pause repo_sync_42 --until 2026-12-01T06:00:00Z --reason "the repository is moving"',
    'schedules resume --all',
    'schedules --schedules-collection jobs --runs-collection jobRuns',
  ])
  registerSet(command, context)
  registerPause(command, context)
  registerResume(command, context)
  registerRemove(command, context)
}

/** Adds the options of every command on schedules. */
export const withSchedules = (command: Command, examples: readonly string[] = []): void =>
  withDatabase(command, examples, SCHEDULE_SETTINGS)

/** Rejects the same collection for schedules and runs, which is a mistake, before any work. */
const withTwoCollections =
  (on: typeof onDatabase): typeof onDatabase =>
  (context, options, ask) =>
    on(context, options, (system) => {
      const { schedules, runs } = system.collections ?? {}
      if (schedules === runs)
        throw new UsageError(`--schedules-collection and --runs-collection: expected two names, got '${runs}' twice`)
      return ask(system)
    })

export const onSchedules = withTwoCollections(onDatabase)
export const lookAtSchedules = withTwoCollections(lookAtDatabase)

async function list(context: CliContext, options: Options & ListSchedules): Promise<void> {
  const { output } = context
  const { phase, limit } = options
  if (phase !== undefined && !['Active', 'Paused', 'Finished', 'Broken'].includes(phase))
    throw new UsageError(`--phase: expected Active, Paused, Finished or Broken, got '${phase}'`)
  const { schedules, more } = await lookAtSchedules(context, options, (system) =>
    listSchedules(system, { phase, limit, after: options.after }),
  )
  if (options.json) return output.json(schedules)
  if (schedules.length === 0) return output.line(`no ${phase ? `${phase} ` : ''}schedules`)
  output.table(['id', 'task', 'when', 'phase', 'next run', 'last run', 'ended'], schedules.map(row))
  for (const schedule of schedules) {
    const id = valueText(schedule._id)
    if (schedule.broken) output.line(`${id} is broken: ${valueText(schedule.broken)}`)
    else for (const pause of schedule.pauses ?? []) output.line(`${id} is paused${pauseText(pause)}`)
  }
  if (more) output.line(`(the first ${limit}; --after '${valueText(schedules.at(-1)!._id)}' shows more)`)
}

const row = (schedule: ListedSchedule): string[] => [
  valueText(schedule._id),
  valueText(schedule.task ?? '-'),
  whenOf(schedule),
  valueText(schedule.phase ?? 'new'),
  shortTime(schedule.nextRunAt),
  shortTime(schedule.lastRun?.scheduledFor ?? schedule.lastRunAt),
  schedule.lastRun ? endText(schedule.lastRun, 80) : '-',
]

function whenOf({ cron, timezone, interval, at }: ListedSchedule): string {
  if (cron != null) return `${valueText(cron)}${timezone ? ` ${valueText(timezone)}` : ''}`
  // A number that an earlier version, or another client, has stored is one of seconds.
  if (interval != null)
    return `every ${Number.isFinite(interval) ? formatMs(Number(interval) * 1_000) : valueText(interval)}`
  return at == null ? '-' : `once ${timeText(at)}`
}

/** `Completed in 1.2 s`, `Skipped: overlap: ...`. */
export function endText(
  { phase, durationMs, reason, error }: Pick<StoredRun, 'phase' | 'durationMs' | 'reason' | 'error'>,
  length?: number,
): string {
  const [why = ''] = valueText(error?.message ?? reason ?? '').split('\n')
  const took = typeof durationMs === 'number' ? ` in ${formatMs(durationMs)}` : ''
  return `${valueText(phase)}${took}${why && `: ${why.slice(0, length)}`}`
}

/** ` until 2026-12-01T06:00:00Z by anna: it is moving`. */
function pauseText({ until, by, reason }: Partial<ListedPause>): string {
  return `${until ? ` until ${timeText(until)}` : ''}${by ? ` by ${valueText(by)}` : ''}${reason ? `: ${valueText(reason)}` : ''}`
}

export function timeText(time: unknown): string {
  if (time instanceof Date && !Number.isNaN(time.getTime())) return time.toISOString().replace('.000Z', 'Z')
  return typeof time === 'string' ? time : '-'
}

function registerSet(schedules: Command, context: CliContext): void {
  const command = schedules
    .command('set')
    .description('create a schedule, or replace the one with this id')
    .argument('<id>', "the schedule's id")
    .argument('<fields>', 'JSON: task, args, cron or interval or at, timezone, ... (docs/schedules.md)')
    .action(async (id: string, fields: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      const given = documentFrom(fields) as never
      const done = await onSchedules(context, options, (system) => setSchedule(system, id, given, byFrom(options)))
      print(context, options, { _id: id, done }, `${id} ${done}`)
    })
  withSchedules(byAndReason(command))
}

function registerPause(schedules: Command, context: CliContext): void {
  const command = schedules
    .command('pause')
    .description('pause a schedule: it does not run until it is resumed, and what it misses is not made up for')
  const pause = onOneOrAll(command, 'all schedules', context, (system, id, options) => {
    const { until, reason } = options as { until?: Date; reason?: string }
    return pauseSchedules(system, id, { until, reason, by: byFrom(options) })
  })
  reasonOption(pause, 'why, for others to read').option(
    '--until <time>',
    'resume it automatically at this time, such as 2026-12-01T06:00:00Z',
    timeFrom,
  )
}

function registerResume(schedules: Command, context: CliContext): void {
  const command = schedules
    .command('resume')
    .description(
      'end a pause of a schedule: with the last one it is resumed from then on; one that was deactivated becomes active again',
    )
  onOneOrAll(command, 'all that are paused', context, (system, id, options) =>
    resumeSchedules(system, id, byFrom(options), (options as { of?: string }).of),
  ).option('--of <owner>', 'the pause of this person (default: yours, or the only one there is)')
}

/**
 * A command on one schedule, or with `--all` on all.
 * @param act acts on one, or without an id on all; resolves to their number
 */
function onOneOrAll(
  command: Command,
  all: string,
  context: CliContext,
  act: (system: System, id: string | undefined, options: Options) => Promise<number>,
): Command {
  const done = `${command.name()}d`
  command
    .argument('[id]', "the schedule's id")
    .option('--all', all)
    .action(async (id: string | undefined, _options: Options, sub: Command) => {
      const options = merged(sub)
      if ((id === undefined) === (options['all'] === undefined)) throw new UsageError('expected a schedule or --all')
      const { count, pauses } = await onSchedules(context, options, async (system) => ({
        count: await act(system, id, options),
        pauses: await listSchedulePauses(system, id),
      }))
      print(
        context,
        options,
        { [done]: count },
        `${id ?? numbered(count, 'schedule')} ${done}${restText(command, id, byFrom(options), pauses)}`,
      )
    })
  withSchedules(command.name() === 'pause' ? byOption(command) : byAndReason(command))
  return command
}

const MOST_LISTED = 100

/** What else is paused once a pause was added or has ended. */
function restText(command: Command, id: string | undefined, by: string, pauses: readonly ListedPause[]): string {
  const isPause = command.name() === 'pause'
  const rest = isPause ? pauses.filter((pause) => pause.by !== by) : pauses
  if (id !== undefined) return rest.map((pause) => `; ${isPause ? 'also' : 'still'} paused${pauseText(pause)}`).join('')
  if (isPause || rest.length === 0) return ''
  return `; still in force: ${numbered(rest.length, 'pause')}${rest.length < MOST_LISTED ? '' : ' or more'} (phaselock schedules --phase Paused)`
}

function registerRemove(schedules: Command, context: CliContext): void {
  const command = schedules
    .command('remove')
    .description('delete a schedule; its runs stay, and those under way continue')
    .argument('<id>', "the schedule's id")
    .action(async (id: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      await onSchedules(context, options, (system) => removeSchedule(system, id))
      print(context, options, { _id: id, removed: true }, `${id} removed`)
    })
  withSchedules(byAndReason(command))
}
