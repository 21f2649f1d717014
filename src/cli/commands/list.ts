import type { Command } from 'commander'
import type { Document } from 'mongodb'
import { typeName } from '../../lock/index.js'
import {
  type Condition,
  type Found,
  idText,
  LISTED_CONDITIONS,
  type ListOptions,
  listDocuments,
  type System,
  TROUBLES,
} from '../../operations/index.js'
import { typed } from '../../options/index.js'
import { fromNow } from '../../time/index.js'
import { type CliContext, lookAtSystem, type Options } from '../context.js'
import type { Output } from '../output.js'
import { watching } from '../watch.js'
import { documentFrom, limitFrom, watchOption, withDatabase } from './command.js'
import { cut, printCounts } from './count.js'
import { freshOption } from './fresh.js'

type Filters = Options &
  Omit<ListOptions, 'lifecycle' | 'filter'> & {
    readonly filter?: string
    readonly newest?: true
    readonly fresh?: true
  }

/** The options that make it a list of documents rather than counts. */
const FILTERS = [
  ...(['phase', 'state', 'on', ...TROUBLES, 'condition', 'cause', 'key', 'olderThan', 'filter'] as const),
  ...(['newest', 'after'] as const),
]

export function registerList(program: Command, context: CliContext): void {
  const command = program
    .command('list')
    .description(
      'list documents and what they are doing; without a lifecycle or a filter, count them by lifecycle and phase',
    )
    .argument('[lifecycle]', 'the kind of document (default: all)')
    .option('--phase <phase>', 'only those in this phase')
    .option('--state <state>', 'only those whose owner wants this state')
    .option('--parked', 'only those waiting for a person')
    .option('--bugs', 'only those parked because of a bug of the program (with others of these: either)')
    .option('--failing', 'only those whose last step failed, and is tried again (with --parked: either)')
    .option('--waiting', 'only those whose handler waits for something (with others: any of them)')
    .option('--on <name>', "only those that wait for what their handler calls so, such as 'certificate'")
    .option('--condition <condition>', `only those that are ${LISTED_CONDITIONS.join(', ')}`)
    .option('--cause <cause>', 'only those that fail or are parked for this cause: 12 hex digits')
    .option('--key <value>', "only those with this value of the field of the lifecycle's limitBy")
    .option('--older-than <duration>', 'only those of which nothing has been recorded for so long, such as 2h')
    .option('--filter <json>', 'only those that match this filter, which names a field of search in the settings')
    .option('--newest', 'the other way round: the newest first')
    .option('--after <cursor>', 'the page after one that ended with this')
    .option('--payload', "with --json: the owner's fields too, not only those that Phaselock uses")
    .option('--limit <n>', 'at most this many documents, 1 to 10000', limitFrom, 50)
    .action((lifecycle: string | undefined, options: Filters) => {
      const filtered = FILTERS.some((filter) => options[filter] !== undefined)
      return lookAtSystem(context, options, (system) =>
        watching(context, options, (output) =>
          lifecycle === undefined && !filtered
            ? printCounts(output, system, options)
            : printDocuments(output, system, lifecycle, options),
        ),
      )
    })
  withDatabase(watchOption(freshOption(command)), [
    'list',
    'list --parked --failing',
    'list api-gateway --phase Creating --limit 10',
    'list --waiting --watch',
    'list instance --on readiness',
    'list api-gateway --parked --json',
    'list order --condition sleeping --older-than 2h --newest',
    `list order --filter '{"customer": "4711"}' --json --payload`,
  ])
}

async function printDocuments(
  output: Output,
  system: System,
  lifecycle: string | undefined,
  options: Filters,
): Promise<void> {
  const { filter, newest, ...others } = options
  const { documents, next, note } = await listDocuments(system, {
    ...{ ...others, lifecycle, order: newest ? 'newest' : undefined },
    filter: filter === undefined ? undefined : (documentFrom(filter) as Document),
  })
  const more = next === undefined ? [] : [`the first ${documents.length}; more with: --after ${typed(next)}`]
  const notes = [...(note === undefined ? [] : [note]), ...more].map((text) => `(${text})`)
  if (options.json) {
    output.json(
      documents.map(({ lifecycle, condition, why, pause, document }) => ({
        lifecycle,
        condition,
        why,
        pause,
        document,
      })),
    )
    for (const text of notes) output.problem(text)
    return
  }
  if (documents.length === 0 && notes.length === 0) {
    return output.line(`no such documents of ${lifecycle ?? system.models.map(({ name }) => name).join(', ')}`)
  }
  const [all, ofOne] = [['lifecycle', 'id', 'phase', 'state', 'condition', 'why'], lifecycle === undefined ? 0 : 1]
  const rows = documents.map((found) => [found.lifecycle, ...documentRow(found)].slice(ofOne))
  output.table(all.slice(ofOne), rows)
  for (const text of notes) output.line(text)
}

function documentRow({ document: { _id, phase, state }, condition, why = '', pause, now }: Found): string[] {
  const [said = ''] = why.split('\n')
  return [
    idText(_id),
    condition.kind === 'removed' ? '(removed)' : textOf(phase),
    textOf(state),
    `${conditionText(condition, now)}${pause ? ' (paused)' : ''}`,
    cut(said),
  ]
}

const textOf = (value: unknown): string =>
  value == null ? '-' : typeof value === 'string' ? cut(value) : `(${typeName(value)})`

function conditionText(condition: Condition, now: Date): string {
  switch (condition.kind) {
    case 'held':
      return `held by ${condition.by}`
    case 'sleeping':
      return condition.unanswerable === undefined
        ? `sleeping, due ${fromNow(condition.until, now)}`
        : "asks, and can't be answered"
    case 'asking':
      return condition.question.deadline ? `asking, ends ${fromNow(condition.question.deadline, now)}` : 'asking'
    case 'due':
      return condition.expired === undefined ? 'due' : `due: the lease of ${condition.expired} has run out`
    case 'final':
      return `final, removed ${condition.removedAt ? fromNow(condition.removedAt, now) : 'next'}`
    case 'removed':
      return 'removed, tells its callbacks'
    case 'unknownPhase':
      return 'unknown phase: left alone'
    case 'broken':
      return `broken: ${condition.field} is ${condition.found}`
    case 'parked':
    case 'resting':
      return condition.kind
  }
}
