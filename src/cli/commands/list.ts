import { type Command, InvalidArgumentError } from 'commander'
import type { Document, Filter } from 'mongodb'
import { PARKED_AT, typeName } from '../../lock/index.js'
import { idText, UsageError } from '../../operations/index.js'
import { didYouMean } from '../../options/index.js'
import type { RunnableLifecycle } from '../../phases/index.js'
import { type CliContext, inWorkspace, type Options } from '../context.js'
import { conditionText } from '../documents/condition-text.js'
import { findDocuments } from '../documents/find-documents.js'
import { countPhases, type PhaseCount } from '../documents/phase-counts.js'
import type { Workspace } from '../workspace.js'
import { examples, withDatabase } from './document-command.js'

export function registerList(program: Command, context: CliContext): void {
  const command = program
    .command('list')
    .description('documents of a lifecycle and what they do; without one, counts by lifecycle and phase')
    .argument('[lifecycle]', 'which kind of document')
    .option('--phase <phase>', 'only those in this phase')
    .option('--state <state>', 'only those whose owner wants this')
    .option('--parked', 'only those that wait for a person')
    .option('--limit <n>', 'at most so many documents, 1 to 10000', limitFrom, 50)
    .action((lifecycle: string | undefined, options: Options) => list(context, lifecycle, options))
  withDatabase(command).addHelpText(
    'after',
    examples(
      'list',
      'list api-gateway',
      'list api-gateway --phase Creating --limit 10',
      'list api-gateway --parked --json',
    ),
  )
}

function limitFrom(text: string): number {
  const n = /^\d+$/.test(text) ? Number(text) : 0
  if (n >= 1 && n <= 10_000) return n
  throw new InvalidArgumentError('expected a whole number from 1 to 10000.')
}

async function list(context: CliContext, name: string | undefined, options: Options): Promise<void> {
  const filters = ['phase', 'state', 'parked'].filter((option) => options[option] !== undefined)
  if (name === undefined && filters.length > 0) {
    throw new UsageError(
      `--${filters[0]} lists documents of one lifecycle: name it, as in: phaselock list <lifecycle> --${filters[0]}${options[filters[0]!] === true ? '' : ` ${options[filters[0]!]}`}`,
    )
  }
  const use = (workspace: Workspace) =>
    name === undefined
      ? listCounts(context, workspace, options)
      : listDocuments(context, workspace, workspace.lifecycle(name), options)
  await inWorkspace(context, options, use, 'reads')
}

async function listCounts(context: CliContext, workspace: Workspace, options: Options): Promise<void> {
  const { db } = workspace.connection
  const counts = (await Promise.all(workspace.lifecycles.map(({ model }) => countPhases(db, model)))).flat()
  if (options['json']) return context.output.json(counts)
  const shown = counts.filter((count) => count.documents > 0)
  if (shown.length === 0) {
    const [first = ''] = workspace.names
    return context.output.line(`no documents of ${workspace.names.join(', ')} yet; add one: phaselock add ${first}`)
  }
  context.output.table(['lifecycle', 'phase', 'documents', 'due', 'held', 'sleeping', 'parked'], shown.map(countRow))
}

/** A resting or final document that nobody has a lease on isn't due in any sense that matters to a person. */
function countRow(count: PhaseCount): string[] {
  const n = (value: number) => (value === 0 ? '-' : `${value}`)
  const isWorking = count.kind === 'working'
  return [
    count.lifecycle,
    count.kind === 'unknown' ? `${count.phase} (unknown)` : count.phase,
    `${count.documents}${count.more ? '+' : ''}`,
    isWorking ? n(count.due) : '',
    n(count.held),
    isWorking ? n(count.sleeping) : '',
    n(count.parked),
  ]
}

async function listDocuments(
  context: CliContext,
  workspace: Workspace,
  lifecycle: RunnableLifecycle,
  options: Options,
): Promise<void> {
  const limit = options['limit'] as number
  const found = await findDocuments(workspace.connection.db, lifecycle, filterOf(lifecycle, options), limit + 1)
  if (found.length === 0) requireKnownPhase(lifecycle, options['phase'] as string | undefined)
  const shown = found.slice(0, limit)
  if (options['json']) {
    return context.output.json(
      shown.map(({ document, condition }) => ({ lifecycle: lifecycle.model.name, condition, document })),
    )
  }
  if (shown.length === 0) return context.output.line(`no such documents of ${lifecycle.model.name}`)
  context.output.table(
    ['id', 'phase', 'state', 'condition'],
    shown.map(({ document, condition, now }) => [
      idText(document['_id']),
      stateText(document['phase']),
      stateText(document['state']),
      conditionText(condition, now),
    ]),
  )
  if (found.length > limit) context.output.line(`(the first ${limit}; --limit shows more)`)
}

const stateText = (state: unknown): string =>
  state == null ? '-' : typeof state === 'string' ? state : `(${typeName(state)})`

function filterOf(lifecycle: RunnableLifecycle, options: Options): Filter<Document> {
  const filter: Filter<Document> = {}
  if (options['phase'] !== undefined) filter['phase'] = options['phase']
  else if (options['parked']) filter['phase'] = { $in: [...lifecycle.model.phases.keys()] }
  if (options['state'] !== undefined) filter['state'] = { $eq: options['state'], $not: { $type: 'array' } }
  if (options['parked']) filter['lockedAt'] = PARKED_AT
  return filter
}

/** Documents may be in phases that the lifecycle doesn't know; a phase that nobody knows is a typo. */
function requireKnownPhase({ model }: RunnableLifecycle, phase: string | undefined): void {
  if (phase === undefined || model.phases.has(phase)) return
  const known = [...model.phases.keys()]
  throw new UsageError(
    `expected a phase of ${model.name} (${known.join(', ')}), got '${phase}'${didYouMean(phase, known)}`,
  )
}
