import type { Command } from 'commander'
import type { Document } from 'mongodb'
import {
  ACTIONS,
  abortOperation,
  beginOperation,
  idText,
  listOperations,
  nameOf,
  type OperationPreview,
  type OperationRequest,
  type OperationState,
  operationNamed,
  previewOperation,
  previewUndo,
  Refused,
  type System,
  UsageError,
  undoOperation,
  workOnOperations,
} from '../../operations/index.js'
import { numbered } from '../../options/index.js'
import { formatMs, fromNow } from '../../time/index.js'
import { byAndReason, byFrom } from '../by.js'
import { type CliContext, lookAtDatabase, type Options, onDatabase, onSystem } from '../context.js'
import { CliError, EXIT } from '../errors.js'
import { valueText } from '../output.js'
import { printTable, watchingSystem } from '../watch.js'
import { radiusLines } from './blast-radius.js'
import { countFrom, documentFrom, isYes, merged, watchOption, withDatabase } from './command.js'

export function registerOperations(program: Command, context: CliContext): void {
  const command = program
    .command('operations')
    .description('list operations on many documents: how far each is, how fast, how long it still takes')
    .action((options: Options) =>
      watchingSystem(context, lookAtDatabase, options, async (system, output) => {
        const { operations, now } = await listOperations(system)
        printTable(output, options, operations, {
          none: 'no operations; to begin one: phaselock operations run',
          columns: ['operation', 'lifecycle', 'is', 'seen', 'done', 'skipped', 'failed', 'rate', 'left', 'begun', 'by'],
          row: (one) => row(one, now),
        })
      }),
    )
  withDatabase(watchOption(command), [
    'operations',
    'operations run wake --lifecycle order --phase Packing',
    'operations abort wake-4f2a9c1b',
  ])
  registerRun(command, context)
  registerShow(command, context)
  registerResume(command, context)
  registerAbort(command, context)
  registerUndo(command, context)
}

interface RunFlags extends Options {
  readonly id?: string
  readonly filter?: string
  readonly phase?: string
  readonly state?: string
  readonly on?: string
  readonly cause?: string
  readonly toState?: string
  readonly toPhase?: string
  readonly toStep?: string
  readonly set?: string
  readonly first?: number
  readonly watchFor?: string
  readonly atMost?: number
  readonly rate?: number
  readonly concurrency?: number
  readonly dryRun?: true
  readonly reason?: string
  readonly for?: string
}

function registerRun(operations: Command, context: CliContext): void {
  const command = operations
    .command('run')
    .description('do something to many documents: shows how many and a few of them, asks, and works until it is done')
    .argument('<action>', ACTIONS.join(', '))
    .requiredOption('--lifecycle <name>', 'whose documents')
    .option('--filter <json>', 'only documents that match this filter of MongoDB')
    .option('--phase <phase>', 'only those in this phase')
    .option('--state <state>', 'only those whose owner wants this state')
    .option('--parked', 'only those waiting for a person')
    .option('--bugs', 'only those parked because of a bug of the program')
    .option('--failing', 'only those whose last step failed, and is tried again')
    .option('--waiting', 'only those whose handler waits for something')
    .option('--on <name>', "only those that wait for what their handler calls so, such as 'certificate'")
    .option('--cause <cause>', 'only those that fail or are parked for this cause: 12 hex digits')
    .option('--all', 'all of the lifecycle')
    .option('--to-state <state>', 'set-state: the state to set')
    .option('--to-phase <phase>', 'redo: the phase in which they begin again (default: their own); migrate: where to')
    .option('--to-step <step>', 'redo: the step with which they begin (default: the first of the phase)')
    .option('--set <json>', 'redo: fields of their own to set')
    .option('--force', 'set-state: even a state that no rule names')
    .option('--at-most <n>', 'refuse if more documents match (default: 10000)', countFrom)
    .option('--rate <n>', 'at most so many in a second (default: 1000)', countFrom)
    .option('--concurrency <n>', 'at most so many at once (default: 8)', countFrom)
    .option('--first <n>', 'act on so many first, and on tenfold only while none fails for the same cause', countFrom)
    .option('--watch-for <duration>', 'how long to wait for the outcomes of the first ones (default: 2m)')
    .option('--id <id>', 'what it is called: a second one is refused, so that a script may be run again')
    .option('--for <cause>', 'the id of the cause that it is for: phaselock causes shows it when the cause comes back')
    .option('--dry-run', 'only show what would be done')
    .option('--yes', 'do it without asking')
    .action(async (action: string, _options: RunFlags, sub: Command) => {
      const options = merged(sub) as RunFlags
      await onSystem(context, options, async (system) => {
        const request = requestFrom(action, options)
        const preview = await previewOperation(system, request)
        if (options.dryRun) return print(context, options, preview)
        if (!options.yes && !(await isMeant(context, options, preview)))
          throw new UsageError(`expected yes, or --yes, to ${sentence(preview)}; nothing was changed`)
        const { _id } = await beginOperation(system, request)
        await work(context, options, system, [_id])
      })
    })
  withDatabase(byAndReason(command), [
    'operations run wake --lifecycle order --phase Packing --dry-run',
    'operations run unpark --lifecycle order --parked --reason "the printer is back" --yes',
    'operations run wake --lifecycle order --on certificate --yes',
    'operations run unpark --lifecycle order --bugs --reason "1.4.2 is out" --yes',
    `operations run set-state --to-state Deleted --lifecycle order --filter '{"customer": "4711"}'`,
    `operations run redo --lifecycle order --parked --to-phase Packing --to-step label --set '{"printer": "p8"}'`,
    'operations run unpark --lifecycle order --parked --first 5 --watch-for 2m --yes',
    'operations run remove --lifecycle order --phase Archived --at-most 1000000 --rate 500 --yes',
  ])
}

function requestFrom(action: string, options: RunFlags): OperationRequest {
  const { id, lifecycle = '', filter, phase, state, on, first, atMost, rate, concurrency, reason } = options
  const { parked, bugs, failing, waiting, all } = options as Readonly<Record<string, true | undefined>>
  const narrowed = filter === undefined ? undefined : (documentFrom(filter) as Document)
  return {
    ...{
      id,
      action: action as OperationRequest['action'],
      first,
      watch: options.watchFor,
      atMost,
      rate,
      concurrency,
      reason,
      by: byFrom(options),
    },
    cause: options.for,
    selection: {
      lifecycle,
      filter: narrowed,
      phase,
      state,
      parked,
      bugs,
      failing,
      waiting,
      on,
      cause: options.cause,
      all,
    },
    options: {
      ...{ state: options.toState, force: options.force, phase: options.toPhase, step: options.toStep },
      set: options.set === undefined ? undefined : documentFrom(options.set),
    },
  }
}

const sentence = ({ action, count, lifecycle }: OperationPreview): string =>
  `${action} ${count} document${count === 1 ? '' : 's'} of ${lifecycle}`

function print({ output }: CliContext, options: Options, preview: OperationPreview): void {
  const { action, lifecycle, count, examples, radius } = preview
  if (options.json) {
    const some = examples.map(({ condition, document: { _id, phase, state } }) => ({ _id, phase, state, condition }))
    output.json({ action, lifecycle, count, examples: some, radius })
    return
  }
  for (const line of previewLines(preview)) output.line(line)
  output.line('nothing was changed; without --dry-run it is done')
}

const previewLines = (preview: OperationPreview): string[] => [
  `${sentence(preview)}${preview.count > 0 ? ', such as:' : ''}`,
  ...preview.examples.map(
    ({ lifecycle, document, explanation }) =>
      `  ${nameOf({ lifecycle, _id: document['_id'] })}: ${valueText(document['phase'])}. ${explanation.split('\n')[0]}`,
  ),
  ...radiusLines(preview),
]

const isMeant = (context: CliContext, options: Options, preview: OperationPreview): Promise<boolean> =>
  isYes(context, options, previewLines(preview), sentence(preview))

/** Works on operations until they have ended; Ctrl-C leaves them as they are, to be resumed later. */
async function work(context: CliContext, options: Options, system: System, ids: readonly string[]): Promise<void> {
  const { output } = context
  const leaving = new AbortController()
  const leave = () => leaving.abort()
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
  for (const signal of signals) process.once(signal, leave)
  try {
    const tell = (one: OperationState) => options.json || output.problem(progressText(one))
    const ended = await workOnOperations(system, ids, { tell, signal: leaving.signal })
    if (options.json) output.json(ended.length === 1 ? ended[0] : ended)
    else for (const one of ended) for (const line of endLines(one)) output.line(line)
    const open = ended.filter(({ condition }) => condition === 'Running' || condition === 'Waiting')
    if (open.length > 0)
      throw new Refused(
        `not done yet: ${open.map(({ _id }) => _id).join(', ')}`,
        undefined,
        'go on with: phaselock operations resume',
      )
    const failed = ended.filter(({ condition, counts }) => condition === 'Parked' || counts.failed > 0)
    if (failed.length > 0)
      throw new CliError(
        'OperationFailed',
        EXIT.failure,
        `expected all documents to be done, got failures in ${failed.map(({ _id }) => _id).join(', ')}`,
      )
  } finally {
    for (const signal of signals) process.off(signal, leave)
  }
}

const progressText = (one: OperationState): string => {
  const { _id, counts, expected, worker, leaseLeftMs = 0 } = one
  const leftMs = Math.ceil(leaseLeftMs / 1_000) * 1_000
  const elsewhere = worker ? `; ${worker} works on it, or was killed: then it goes on in ${formatMs(leftMs)}` : ''
  return `${_id}: ${counts.seen} of ${expected}, ${rateText(one)}, ${leftText(one)} left${elsewhere}`
}
const rateText = ({ perSecond }: OperationState): string =>
  perSecond === undefined ? '-' : `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)}/s`
const leftText = ({ leftMs }: OperationState): string => (leftMs === undefined ? '-' : formatMs(leftMs))

function endLines(one: OperationState): string[] {
  const { _id, condition, problem, counts, troubles, workedMs, expected } = one
  const { seen, done, unchanged, skipped, failed } = counts
  const rest = Object.entries({ unchanged, skipped, failed }).flatMap(([what, n]) => (n > 0 ? [`${n} ${what}`] : []))
  const of =
    condition === 'Done' || seen >= expected
      ? numbered(seen, 'document')
      : `the first ${seen} of ${numbered(expected, 'document')}`
  return [
    `${_id}: ${condition}${problem ? ` (${problem})` : ''}; of ${of} ${done} done${rest.map((text) => `, ${text}`).join('')}, in ${formatMs(workedMs)}`,
    ...troubles.map(
      ({ what, reason, count, examples }) =>
        `  ${what} ${count}: ${reason} (${examples.map(idText).join(', ')}${count > examples.length ? ', ...' : ''})`,
    ),
  ]
}

function row(one: OperationState, now: Date | undefined): string[] {
  const { _id, lifecycle, condition, counts, expected, createdAt, by } = one
  return [
    ...[_id, lifecycle, condition, `${counts.seen} of ${expected}`],
    ...[counts.done + counts.unchanged, counts.skipped, counts.failed].map((n) => `${n || '-'}`),
    ...[rateText(one), leftText(one), createdAt && now ? fromNow(createdAt, now) : '-', by],
  ]
}

function registerShow(operations: Command, context: CliContext): void {
  const command = operations
    .command('show')
    .description('show an operation: what it does to which documents, how far it is, and what it left alone')
    .argument('<id>', "the operation's id")
    .action((id: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      return lookAtDatabase(context, options, async (system) => {
        const found = await operationNamed(system, id)
        const { output } = context
        if (options.json) return output.json(found)
        for (const line of endLines(found)) output.line(line)
        const { lifecycle, filter, expected, by, why, worker } = found
        output.line(`  of ${lifecycle}, where ${filter}; ${expected} matched`)
        output.line(`  by ${by}${why ? `: ${why}` : ''}${worker ? `; ${worker} works on it` : ''}`)
      })
    })
  withDatabase(command, ['operations show wake-4f2a9c1b'])
}

function registerResume(operations: Command, context: CliContext): void {
  const command = operations
    .command('resume')
    .description('work on operations that nobody works on any more, until they are done')
    .argument('[id...]', 'their ids (default: all that have not ended)')
    .action((ids: string[], _options: Options, sub: Command) => {
      const options = merged(sub)
      return onDatabase(context, options, async (system) => {
        for (const id of ids) await operationNamed(system, id)
        const { operations } = await listOperations(system, { limit: 10_000 })
        const open = operations.filter(({ condition }) => condition === 'Running' || condition === 'Waiting')
        const meant = ids.length > 0 ? ids : open.map(({ _id }) => _id)
        if (meant.length === 0) return context.output.line('no operation is under way')
        await work(context, options, system, meant)
      })
    })
  withDatabase(command, ['operations resume', 'operations resume wake-4f2a9c1b'])
}

function registerUndo(operations: Command, context: CliContext): void {
  const command = operations
    .command('undo')
    .description('put documents back to what they were before an operation, where nothing has happened to them since')
    .argument('<id>', "the operation's id")
    .option('--yes', 'do it without asking')
    .action((id: string, _options: RunFlags, sub: Command) => {
      const options = merged(sub) as RunFlags
      return onDatabase(context, options, async (system) => {
        const { of, count } = await previewUndo(system, id)
        const question = `look at ${count} document${count === 1 ? '' : 's'} of ${of.lifecycle} to undo ${of.action}`
        if (!options.yes && !(await isYes(context, options, [], question)))
          throw new UsageError(`expected yes, or --yes, to ${question}; nothing was changed`)
        const { _id } = await undoOperation(system, id, { by: byFrom(options), reason: options.reason })
        await work(context, options, system, [_id])
      })
    })
  withDatabase(byAndReason(command), ['operations undo unpark-4f2a9c1b --reason "the wrong printer"'])
}

function registerAbort(operations: Command, context: CliContext): void {
  const command = operations
    .command('abort')
    .description('end an operation after the documents that are under way; what is done stays done')
    .argument('<id>', "the operation's id")
    .action((id: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      return onDatabase(context, options, async (system) => {
        const { counts, expected } = await abortOperation(system, id)
        if (options.json) return context.output.json({ _id: id, aborted: true, counts })
        context.output.line(`${id}: asked to end; ${counts.seen} of ${expected} were done by then`)
      })
    })
  withDatabase(byAndReason(command), ['operations abort wake-4f2a9c1b'])
}
