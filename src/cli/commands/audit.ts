import type { Command } from 'commander'
import { type AuditRequest, idText, listAudit } from '../../operations/index.js'
import type { AuditEntry } from '../../phases/index.js'
import { durationMs, systemClock } from '../../time/index.js'
import { type CliContext, lookAtDatabase, type Options } from '../context.js'
import { valueText } from '../output.js'
import { durationFrom, limitFrom, shortTime, timeFrom, withDatabase } from './command.js'

type AuditFlags = Options & AuditRequest & { readonly last?: string; readonly limit: number }

export function registerAudit(program: Command, context: CliContext): void {
  const command = program
    .command('audit')
    .description('list who did what to documents, schedules, limits and the like, and why: the newest first')
    .argument('[id]', 'only about the document with this _id: plain text, ObjectId or Extended JSON')
    .option('--lifecycle <name>', 'only about documents of this lifecycle')
    .option('--by <name>', 'only what they did')
    .option('--action <action>', "only this action, such as wake or 'limits set'")
    .option('--last <duration>', 'only what was done in this time, such as 2h', durationFrom)
    .option('--since <time>', 'only what was done from this time on, such as 2026-12-01T06:00:00Z', timeFrom)
    .option('--until <time>', 'only what was done before this time', timeFrom)
    .option('--limit <n>', 'at most this many, 1 to 10000', limitFrom, 50)
    .action((id: string | undefined, options: AuditFlags) =>
      lookAtDatabase(context, options, async (system) => {
        const { lifecycle, by, action, last, since, until, limit } = options
        const from = last === undefined ? since : new Date(systemClock.now().getTime() - durationMs(last))
        const request = { id, lifecycle, by, action, since: from, until, limit }
        const { entries, more } = await listAudit(system, request)
        const { output } = context
        if (options.json) return output.json(entries)
        if (entries.length === 0) return output.line('no such entries')
        output.table(['when', 'by', 'action', 'on', 'outcome', 'change', 'why'], entries.map(row))
        if (more) output.line(`(the newest ${limit}; --limit shows more)`)
      }),
    )
  withDatabase(command, [
    'audit',
    'audit shop',
    'audit --by ana --last 2h',
    "audit --action 'limits set' --since 2026-12-01T06:00:00Z --json",
  ])
}

const row = (entry: AuditEntry): string[] => [
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
