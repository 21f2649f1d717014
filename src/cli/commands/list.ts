import { type Command } from 'commander'
import { typeName } from '../../lock/index.js'
import {
  type Condition,
  countPhases,
  idText,
  type ListOptions,
  listDocuments,
  type PhaseCount,
  type System,
  UsageError,
} from '../../operations/index.js'
import { formatMs } from '../../time/index.js'
import { type CliContext, lookAtSystem, type Options } from '../context.js'
import { limitFrom, withDatabase } from './command.js'

type Filters = Options & Omit<ListOptions, 'lifecycle'>

export function registerList(program: Command, context: CliContext): void {
  const command = program
    .command('list')
    .description(
      'list the documents of a lifecycle and what they are doing; without one, count them by lifecycle and phase',
    )
    .argument('[lifecycle]', 'the kind of document')
    .option('--phase <phase>', 'only those in this phase')
    .option('--state <state>', 'only those whose owner wants this state')
    .option('--parked', 'only those waiting for a person')
    .option('--limit <n>', 'at most this many documents, 1 to 10000', limitFrom, 50)
    .action((lifecycle: string | undefined, options: Filters) => {
      if (lifecycle === undefined) requireNoFilter(options)
      return lookAtSystem(context, options, (system) =>
        lifecycle === undefined ? listCounts(context, system, options) : list(context, system, lifecycle, options),
      )
    })
  withDatabase(command, [
    'list',
    'list api-gateway',
    'list api-gateway --phase Creating --limit 10',
    'list api-gateway --parked --json',
  ])
}

function requireNoFilter(options: Filters): void {
  const filter = ['phase', 'state', 'parked'].find((option) => options[option] !== undefined)
  if (filter === undefined) return
  const value = options[filter] === true ? '' : ` ${options[filter]}`
  throw new UsageError(
    `--${filter} lists documents of one lifecycle: name it, as in: phaselock list <lifecycle> --${filter}${value}`,
  )
}

async function listCounts({ output }: CliContext, system: System, options: Options): Promise<void> {
  const counts = await countPhases(system)
  if (options.json) return output.json(counts)
  const shown = counts.filter((count) => count.documents > 0)
  if (shown.length === 0) {
    const names = system.models.map(({ name }) => name)
    return output.line(`no documents of ${names.join(', ')} yet; add one: phaselock add ${names[0]}`)
  }
  output.table(['lifecycle', 'phase', 'documents', 'due', 'held', 'sleeping', 'parked'], shown.map(countRow))
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

async function list({ output }: CliContext, system: System, lifecycle: string, options: Filters): Promise<void> {
  const { documents, more } = await listDocuments(system, { ...options, lifecycle })
  if (options.json) return output.json(documents.map(({ condition, document }) => ({ lifecycle, condition, document })))
  if (documents.length === 0) return output.line(`no such documents of ${lifecycle}`)
  const rows = documents.map(({ document: { _id, phase, state }, condition, now }) => [
    idText(_id),
    textOf(phase),
    textOf(state),
    conditionText(condition, now),
  ])
  output.table(['id', 'phase', 'state', 'condition'], rows)
  if (more) output.line(`(the first ${options.limit}; --limit shows more)`)
}

const textOf = (value: unknown): string =>
  value == null ? '-' : typeof value === 'string' ? value : `(${typeName(value)})`

function conditionText(condition: Condition, now: Date): string {
  const inMs = (then: Date) => `in ${formatMs(Math.max(0, then.getTime() - now.getTime()))}`
  switch (condition.kind) {
    case 'held':
      return `held by ${condition.by}`
    case 'sleeping':
      return `sleeping until ${condition.until.toISOString()} (${inMs(condition.until)})`
    case 'due':
      return condition.expired === undefined ? 'due' : `due: the lease of ${condition.expired} has run out`
    case 'final':
      return `final, removed ${condition.removedAt ? inMs(condition.removedAt) : 'next'}`
    case 'unknownPhase':
      return 'unknown phase: left alone'
    case 'broken':
      return `broken: ${condition.field} is ${condition.found}`
    case 'parked':
    case 'resting':
      return condition.kind
  }
}
