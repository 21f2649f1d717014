import type { Command } from 'commander'
import {
  type ListedPause,
  listPauses,
  type PauseScope,
  pausedText,
  pauseWork,
  resumeWork,
  UsageError,
} from '../../operations/index.js'
import { fromNow } from '../../time/index.js'
import { byAndReason, byFrom, byOption, formerOption, reasonOption } from '../by.js'
import { type CliContext, lookAtSystem, type Options, onDatabase, onSystem } from '../context.js'
import { printTable, watchingSystem } from '../watch.js'
import { durationFrom, print, timeFrom, watchOption, withDatabase } from './command.js'
import { dryRunOption, isDryRun, predictable, printPredictions, seenFrom } from './predicted.js'

type ScopeOptions = Options & {
  readonly phase?: string
  readonly key?: string
  readonly all?: true
}

export function registerPause(program: Command, context: CliContext): void {
  const pause = scoped(
    program,
    'pause',
    'pause a lifecycle, a phase, one document or everything: running steps end, none begins',
  )
  pause.action((lifecycle: string | undefined, id: string | undefined, options: ScopeOptions) => {
    const scope = scopeOf(lifecycle, id, options)
    return isDryRun(options) ? predicted(context, options, scope, 'pause') : pauseScope(context, options, scope)
  })
  withDatabase(predictable(pauseOptions(pause)), [
    'pause order --reason "the warehouse is moving" --for 2h',
    'pause order --phase Packing --until 2026-12-01T06:00:00Z',
    'pause order order-4711 --by ana',
    'pause --all --reason "migrating the database"',
  ])
}

/** Shows what a pause of one document, or its end, would mean for it. */
function predicted(
  context: CliContext,
  options: ScopeOptions & { readonly reason?: string; readonly of?: string },
  { id, lifecycle }: PauseScope,
  action: 'pause' | 'resume',
): Promise<void> {
  if (id === undefined) throw new UsageError(`expected one document with --dry-run: ${action} <lifecycle> <id>`)
  const by = byFrom(options)
  const named = { ...options, ...(lifecycle !== undefined && { lifecycle }) }
  const { reason, of } = options
  return printPredictions(context, [id], named, action === 'pause' ? { action, by, reason } : { action, by, of })
}

/** The options of a pause. */
export const pauseOptions = (command: Command): Command =>
  reasonOption(byOption(command), 'why, for others to read')
    .option('--until <time>', 'resume it automatically at this time, such as 2026-12-01T06:00:00Z', timeFrom)
    .option('--for <duration>', 'resume it automatically after so long, such as 2h', durationFrom)

/** The options of a resumption. */
export const resumeOptions = (command: Command): Command =>
  byAndReason(command).option('--of <owner>', 'the pause of this person (default: yours, or the only one there is)')

/** A limit is no lifecycle's: it can be paused before any is registered, as it can be set. */
const onScope = (scope: PauseScope) => ('limit' in scope && scope.limit !== undefined ? onDatabase : onSystem)

export function pauseScope(context: CliContext, options: Options, scope: PauseScope): Promise<void> {
  return onScope(scope)(context, options, async (system) => {
    const { until, for: duration, reason } = options as { until?: Date; for?: string; reason?: string }
    const seen = seenFrom(options, [])
    const paused = await pauseWork(system, { ...scope, by: byFrom(options), reason, until, for: duration, ...seen })
    const { pauses } = await listPauses(system)
    const lines = paused.map((pause) => {
      const also = othersOf(pauses, pause).map((other) => `; also paused${aboutPause(other)}`)
      return `${pausedText(pause)}: paused${aboutPause(pause)}${also.join('')}`
    })
    print(context, options, paused, lines.join('\n'))
  })
}

export function registerResume(program: Command, context: CliContext): void {
  const resume = scoped(program, 'resume', 'end a pause: what is due goes on at once')
  resume.action((lifecycle: string | undefined, id: string | undefined, options: ScopeOptions) => {
    const scope = scopeOf(lifecycle, id, options)
    return isDryRun(options) ? predicted(context, options, scope, 'resume') : resumeScope(context, options, scope)
  })
  withDatabase(dryRunOption(resumeOptions(resume)), [
    'resume order',
    'resume order --phase Packing',
    'resume order --of ben',
    'resume order order-4711',
    'resume --all',
  ])
}

export function resumeScope(context: CliContext, options: Options, scope: PauseScope): Promise<void> {
  return onScope(scope)(context, options, async (system) => {
    const { of } = options as { of?: string }
    const resumed = await resumeWork(system, { ...scope, by: byFrom(options), of })
    const { pauses, now } = await listPauses(system)
    const lines = resumed.map((was) => {
      const rest = pauses.filter(
        (pause) => was.what !== 'limit' && pause.what !== 'limit' && pause.lifecycle === was.lifecycle,
      )
      const mine = was.what === 'limit' ? othersOf(pauses, was) : []
      const still = [...mine, ...rest].map((pause) => `${pausedText(pause)} is still paused by ${pause.by}`)
      return [`${pausedText(was)}: resumed; it was paused ${fromNow(was.since, now)} by ${was.by}`, ...still].join('; ')
    })
    print(context, options, resumed, lines.join('\n'))
  })
}

export function registerPauses(program: Command, context: CliContext): void {
  const command = program
    .command('pauses')
    .description('list what is paused: since when, until when, by whom and why')
    .argument('[lifecycle]', 'the kind of document (default: all)')
    .action((lifecycle: string | undefined, options: Options) =>
      watchingSystem(context, lookAtSystem, options, async (system, output) => {
        const { pauses, now } = await listPauses(system, lifecycle)
        printTable(output, options, pauses, {
          none: 'nothing is paused',
          columns: ['what', 'since', 'until', 'by', 'reason'],
          row: (pause) => [
            pausedText(pause),
            fromNow(pause.since, now),
            pause.until ? fromNow(pause.until, now) : 'resumed',
            pause.by,
            pause.reason ?? '-',
          ],
        })
      }),
    )
  withDatabase(watchOption(command), ['pauses', 'pauses order --json'])
}

const scoped = (program: Command, name: string, description: string): Command =>
  program
    .command(name)
    .description(description)
    .argument('[lifecycle]', 'the kind of document')
    .argument('[id]', "one document's _id: plain text, ObjectId or Extended JSON")
    .option('--phase <phase>', 'only the documents in this phase')
    .option('--key <value>', 'documents with this value in the field by which the lifecycle limits (limitBy)')
    .option('--all', 'everything: all lifecycles that replicas have registered')
    .addOption(
      formerOption('--limit <name>', `expected limits ${name} <name>, got --limit: it is a command of its own now`),
    )

function scopeOf(lifecycle: string | undefined, id: string | undefined, { phase, all, key }: ScopeOptions): PauseScope {
  if (key !== undefined) {
    if (all || lifecycle === undefined) throw new UsageError('expected a lifecycle with --key')
    return { lifecycle, id, phase, key }
  }
  if (all && lifecycle !== undefined) throw new UsageError(`expected --all or a lifecycle, got both (${lifecycle})`)
  if (all && phase !== undefined) throw new UsageError('expected --all or a phase of a lifecycle, got both')
  if (!all && lifecycle === undefined) throw new UsageError('expected a lifecycle or --all')
  return { lifecycle, phase, id }
}

/** The pauses of the same scope by other people. */
const othersOf = (pauses: readonly ListedPause[], pause: ListedPause): readonly ListedPause[] =>
  pauses.filter(
    (other) => pausedText(other) === pausedText(pause) && other.by !== pause.by && other.what === pause.what,
  )

function aboutPause({ by, until, reason }: ListedPause): string {
  const end = until ? ` until ${until.toISOString()}` : ' until it is resumed'
  return ` by ${by}${end}${reason === null ? '' : `: ${reason}`}`
}
