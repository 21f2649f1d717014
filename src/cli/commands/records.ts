import type { Command } from 'commander'
import {
  type AuditRequest,
  type EventsRequest,
  idText,
  listAudit,
  listEvents,
  type System,
} from '../../operations/index.js'
import type { AuditEntry, DocumentEvent } from '../../phases/index.js'
import { durationMs, formatMs, systemClock } from '../../time/index.js'
import { type CliContext, lookAtDatabase, type Options } from '../context.js'
import { valueText } from '../output.js'
import { durationFrom, limitFrom, shortTime, timeFrom, withDatabase } from './command.js'

type Flags = Options & AuditRequest & EventsRequest & { readonly last?: string; readonly limit: number }

/** Records of one kind, and how they are shown. */
interface Records<T> {
  /** The beginning of the texts about time: `only what was done`. */
  readonly only: string
  list(system: System, flags: Flags): Promise<{ readonly records: readonly T[]; readonly more: boolean }>
  readonly none: string
  readonly columns: string[]
  row(record: T): string[]
}

/** Adds the options about the time and the number of records, and lists these. */
const listing = <T>(context: CliContext, command: Command, { only, list, none, columns, row }: Records<T>): Command =>
  command
    .option('--last <duration>', `${only} in this time, such as 2h`, durationFrom)
    .option('--since <time>', `${only} from this time on, such as 2026-12-01T06:00:00Z`, timeFrom)
    .option('--until <time>', `${only} before this time`, timeFrom)
    .option('--limit <n>', 'at most this many, 1 to 10000', limitFrom, 50)
    .action((id: string | undefined, { last, ...flags }: Flags) =>
      lookAtDatabase(context, flags, async (system) => {
        const since = last === undefined ? flags.since : new Date(systemClock.now().getTime() - durationMs(last))
        const { records, more } = await list(system, { ...flags, id, since })
        const { output } = context
        if (flags.json) return output.json(records)
        if (records.length === 0) return output.line(none)
        output.table(columns, records.map(row))
        if (more) output.line(`(the newest ${flags.limit}; --limit shows more)`)
      }),
    )

export function registerAudit(program: Command, context: CliContext): void {
  const command = program
    .command('audit')
    .description('list who did what to documents, schedules, limits and the like, and why: the newest first')
    .argument('[id]', 'only about the document with this _id: plain text, ObjectId or Extended JSON')
    .option('--lifecycle <name>', 'only about documents of this lifecycle')
    .option('--by <name>', 'only what they did')
    .option('--action <action>', "only this action, such as wake or 'limits set'")
  listing<AuditEntry>(context, command, {
    only: 'only what was done',
    list: (system, { id, lifecycle, by, action, since, until, limit }) =>
      listAudit(system, { id, lifecycle, by, action, since, until, limit }),
    none: 'no such entries',
    columns: ['when', 'by', 'action', 'on', 'outcome', 'change', 'why'],
    row: auditRow,
  })
  withDatabase(command, [
    'audit',
    'audit shop',
    'audit --by ana --last 2h',
    "audit --action 'limits set' --since 2026-12-01T06:00:00Z --json",
  ])
}

export function registerEvents(program: Command, context: CliContext): void {
  const command = program
    .command('events')
    .description('list what has happened to documents, as far as their lifecycles keep it: the newest first')
    .argument('[id]', 'only of the document with this _id, with its own history: plain text, ObjectId or Extended JSON')
    .option('--lifecycle <name>', 'only of documents of this lifecycle')
    .option('--replica <name>', 'only what this replica has recorded')
    .option('--outcome <outcome>', 'only these ends of steps, such as error or moveTo')
  listing<DocumentEvent>(context, command, {
    only: 'only what was recorded',
    list: (system, { id, lifecycle, replica, outcome, since, until, limit }) =>
      listEvents(system, { id, lifecycle, replica, outcome, since, until, limit }),
    none: 'no such events',
    columns: ['when', 'document', 'step', 'outcome', 'from -> to', 'took', 'by'],
    row: eventRow,
  })
  withDatabase(command, [
    'events',
    'events order-4711',
    'events --lifecycle order --outcome error --last 2h',
    'events --replica api-2~f01c3b --since 2026-12-01T06:00:00Z --json',
  ])
}

const eventRow = ({ at, lifecycle, document, step, outcome, reason, from, to, ms, by }: DocumentEvent): string[] => [
  shortTime(at),
  `${valueText(lifecycle)} ${idText(document)}`,
  valueText(step ?? '-'),
  `${valueText(outcome)}${reason ? `: ${valueText(reason).split('\n')[0]!.slice(0, 80)}` : ''}`,
  from === to ? valueText(from) : `${valueText(from)} -> ${valueText(to)}`,
  formatMs(Number(ms)),
  valueText(by),
]

const auditRow = (entry: AuditEntry): string[] => [
  shortTime(entry.at),
  valueText(entry.by),
  valueText(entry.action),
  onText(entry),
  `${valueText(entry.outcome)}${entry.problem ? `: ${firstLine(entry.problem)}` : ''}`,
  changeText(entry),
  entry.why ? firstLine(entry.why) : '-',
]

function onText({ lifecycle, document, target }: AuditEntry): string {
  const named = document === undefined ? valueText(target ?? '-') : idText(document)
  return lifecycle === undefined || target === lifecycle ? named : `${valueText(lifecycle)} ${named}`
}

const LONGEST = 80
const firstLine = (text: unknown): string => {
  const [line = ''] = valueText(text).split('\n')
  return line.length > LONGEST ? `${line.slice(0, LONGEST - 3)}...` : line
}

/** The changed fields: `lockedAt: 2026-12-01T06:00:00.000Z -> 1970-01-01T00:00:00.000Z`. */
function changeText({ before, after }: AuditEntry): string {
  if (!isFields(before) || !isFields(after)) return '-'
  const text = (value: unknown) => valueText(value ?? '-')
  const changed = Object.entries(after).filter(([field, value]) => text(before[field]) !== text(value))
  return (
    changed
      .map(([field, value]) => `${field}: ${firstLine(text(before[field]))} -> ${firstLine(text(value))}`)
      .join(', ') || '-'
  )
}

const isFields = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
