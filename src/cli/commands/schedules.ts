import { userInfo } from 'node:os'
import { type Command, InvalidArgumentError } from 'commander'
import type { Settings } from '../../config/index.js'
import { NotFound, UsageError } from '../../operations/index.js'
import { type ListedSchedule, Schedules } from '../../schedules/index.js'
import { formatMs } from '../../time/index.js'
import { type Access, type CliContext, inWorkspace, type Options } from '../context.js'
import { documentFrom } from '../documents/json-argument.js'
import { addSettingOptions, SCHEDULE_SETTINGS } from '../setting-options.js'
import type { Workspace } from '../workspace.js'
import { examples, withDatabase } from './document-command.js'

export function registerSchedules(program: Command, context: CliContext): void {
  const command = program
    .command('schedules')
    .description('schedules with their next run and how the last one ended; those that are broken with the reason')
    .option('--phase <phase>', 'only those in this phase: Active, Paused, Finished or Broken')
    .option('--after <id>', 'those behind this id')
    .option('--limit <n>', 'at most so many, 1 to 10000', limitFrom, 100)
    .action((options: Options) => list(context, options))
  withSchedules(command).addHelpText(
    'after',
    examples(
      'schedules',
      'schedules --phase Broken --json',
      'schedules set repo_sync_42 \'{"task":"repository-sync","cron":"0 */6 * * *","timezone":"Asia/Seoul"}\'',
      'schedules pause repo_sync_42 --until 2026-12-01T06:00:00Z --reason "the repository is moving"',
      'schedules resume --all',
      'schedules --schedules-collection jobs --runs-collection jobRuns',
    ),
  )
  registerSet(command, context)
  registerPause(command, context)
  registerResume(command, context)
  registerRemove(command, context)
}

export function limitFrom(text: string): number {
  const n = /^\d+$/.test(text) ? Number(text) : 0
  if (n >= 1 && n <= 10_000) return n
  throw new InvalidArgumentError('expected a whole number from 1 to 10000.')
}

/** Who does it, for the schedule's edits. */
export function byOption(command: Command): Command {
  return command.option('--by <name>', 'who does it, for the record (default: the name of this user)')
}

export function byFrom(options: Options): string {
  if (typeof options['by'] === 'string') return options['by']
  try {
    return userInfo().username
  } catch {
    return 'cli'
  }
}

/** Options of a subcommand stand before those of its parent, which has the same ones. */
export const merged = (command: Command): Options => command.optsWithGlobals()

/** Options that every command on schedules has. */
export function withSchedules(command: Command): Command {
  return addSettingOptions(withDatabase(command), SCHEDULE_SETTINGS)
}

/** @throws NotFound instead of NoSuchSchedule */
export async function onSchedules<T>(
  context: CliContext,
  options: Options,
  act: (schedules: Schedules) => Promise<T>,
  access?: Access,
): Promise<T> {
  const use = async ({ connection }: Workspace, settings: Settings) => {
    const { schedulesCollection: schedules, runsCollection: runs, doorbell } = settings
    if (schedules === runs)
      throw new UsageError(`--schedules-collection and --runs-collection: expected two names, got '${runs}' twice`)
    const owner = new Schedules({ db: connection.db, collections: { schedules, runs }, doorbell })
    try {
      const result = await act(owner)
      await owner.flush()
      return result
    } catch (error) {
      if (error instanceof Error && error.name === 'NoSuchSchedule') {
        throw new NotFound(`${error.message}; see: phaselock schedules`)
      }
      throw error
    }
  }
  return inWorkspace(context, options, use, access)
}

async function list(context: CliContext, options: Options): Promise<void> {
  const limit = options['limit'] as number
  const [phase, after] = [options['phase'] as string | undefined, options['after'] as string | undefined]
  if (phase !== undefined && !['Active', 'Paused', 'Finished', 'Broken'].includes(phase)) {
    throw new UsageError(`--phase: expected Active, Paused, Finished or Broken, got '${phase}'`)
  }
  const page = { limit: limit + 1, after, phase }
  const found = await onSchedules(context, options, (schedules) => schedules.list(page), 'reads')
  const shown = found.slice(0, limit)
  if (options['json']) return context.output.json(shown)
  if (shown.length === 0) return context.output.line(`no ${phase ? `${phase} ` : ''}schedules`)
  context.output.table(
    ['id', 'task', 'when', 'phase', 'next run', 'last run', 'ended'],
    shown.map((schedule) => [
      String(schedule._id),
      String(schedule.task),
      whenOf(schedule),
      schedule.phase ?? 'new',
      timeText(schedule.nextRunAt),
      timeText(schedule.lastRun?.scheduledFor ?? schedule.lastRunAt),
      endedText(schedule),
    ]),
  )
  for (const schedule of shown) {
    if (schedule.broken) context.output.line(`${schedule._id} is broken: ${schedule.broken}`)
    else if (schedule.paused) context.output.line(`${schedule._id} is paused${pauseText(schedule)}`)
  }
  if (found.length > limit) context.output.line(`(the first ${limit}; --after '${shown.at(-1)!._id}' shows more)`)
}

function whenOf({ cron, timezone, interval, at }: ListedSchedule): string {
  if (cron != null) return `${cron}${timezone ? ` ${timezone}` : ''}`
  if (interval != null) return `every ${typeof interval === 'number' ? formatMs(interval * 1_000) : interval}`
  return at == null ? '-' : `once ${timeText(at)}`
}

function endedText({ lastRun }: ListedSchedule): string {
  if (!lastRun) return '-'
  const ms = lastRun.durationMs === undefined ? '' : ` in ${formatMs(lastRun.durationMs)}`
  const why = lastRun.error?.message ?? lastRun.reason
  return `${lastRun.phase}${ms}${why ? `: ${why.split('\n')[0]!.slice(0, 80)}` : ''}`
}

function pauseText({ paused }: ListedSchedule): string {
  const until = paused?.until ? ` until ${timeText(paused.until)}` : ''
  return `${until}${paused?.by ? ` by ${paused.by}` : ''}${paused?.reason ? `: ${paused.reason}` : ''}`
}

export function timeText(time: unknown): string {
  if (time instanceof Date && !Number.isNaN(time.getTime())) return time.toISOString().replace('.000Z', 'Z')
  return typeof time === 'string' ? time : '-'
}

function registerSet(schedules: Command, context: CliContext): void {
  const command = schedules
    .command('set')
    .description('makes a schedule, or replaces what exists under its id')
    .argument('<id>', 'the schedule')
    .argument('<fields>', 'JSON: task, args, cron or interval or at, timezone, ... (docs/schedules.md)')
    .action(async (id: string, fields: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      const given = documentFrom(fields)
      const by = byFrom(options)
      const done = await onSchedules(context, options, (owner) => owner.upsert(id, given as never, { by }))
      print(context, options, { _id: id, done }, `${id} ${done}`)
    })
  withSchedules(byOption(command))
}

function registerPause(schedules: Command, context: CliContext): void {
  registerOneOrAll(schedules, context, {
    name: 'pause',
    done: 'paused',
    description: 'nothing of it runs until it is resumed; what would have been due is not made up for',
    all: 'all schedules',
    act: (owner, id, options) => {
      const { until, reason } = options as { until?: Date; reason?: string }
      const pause = { until, reason, by: byFrom(options) }
      return id === undefined ? owner.pauseAll(pause) : owner.pause(id, pause).then(() => 1)
    },
  })
    .option('--until <time>', 'resumes by itself then, such as 2026-12-01T06:00:00Z', timeFrom)
    .option('--reason <text>', 'why, for those who wonder')
}

function registerResume(schedules: Command, context: CliContext): void {
  registerOneOrAll(schedules, context, {
    name: 'resume',
    done: 'resumed',
    description: 'plans it from now on; one that was deactivated is active again',
    all: 'all that are paused',
    act: (owner, id, options) => {
      const by = byFrom(options)
      return id === undefined ? owner.resumeAll({ by }) : owner.resume(id, { by }).then(() => 1)
    },
  })
}

interface OneOrAll {
  readonly name: string
  /** What has become of them: `paused`. */
  readonly done: string
  readonly description: string
  /** Which ones `--all` means. */
  readonly all: string
  /** To one, or without an id to all: how many. */
  readonly act: (owner: Schedules, id: string | undefined, options: Options) => Promise<number>
}

/** A command on one schedule, or with `--all` on all. */
function registerOneOrAll(schedules: Command, context: CliContext, of: OneOrAll): Command {
  const command = schedules
    .command(of.name)
    .description(of.description)
    .argument('[id]', 'the schedule')
    .option('--all', of.all)
    .action(async (id: string | undefined, _options: Options, sub: Command) => {
      const options = merged(sub)
      if ((id === undefined) === (options['all'] === undefined)) throw new UsageError('expected a schedule or --all')
      const count = await onSchedules(context, options, (owner) => of.act(owner, id, options))
      print(context, options, { [of.done]: count }, `${id ?? `${count} schedules`} ${of.done}`)
    })
  return withSchedules(byOption(command))
}

function registerRemove(schedules: Command, context: CliContext): void {
  const command = schedules
    .command('remove')
    .description('deletes a schedule; its runs stay, and those under way go on')
    .argument('<id>', 'the schedule')
    .action(async (id: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      const removed = await onSchedules(context, options, (owner) => owner.remove(id))
      if (!removed) throw new NotFound(`there is no schedule '${id}'; see: phaselock schedules`)
      print(context, options, { _id: id, removed }, `${id} removed`)
    })
  withSchedules(command)
}

function timeFrom(text: string): Date {
  const time = new Date(text)
  if (/^\d{4}-\d\d-\d\dT.*(Z|[+-]\d\d:?\d\d)$/.test(text) && !Number.isNaN(time.getTime())) return time
  throw new InvalidArgumentError('expected a time with its zone, such as 2026-12-01T06:00:00Z.')
}

function print(context: CliContext, options: Options, done: object, sentence: string): void {
  if (options['json']) context.output.json(done)
  else context.output.line(sentence)
}
