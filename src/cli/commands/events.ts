import type { Command } from 'commander'
import { type EventsRequest, idText, listEvents } from '../../operations/index.js'
import type { DocumentEvent } from '../../phases/index.js'
import { durationMs, formatMs, systemClock } from '../../time/index.js'
import { type CliContext, lookAtDatabase, type Options } from '../context.js'
import { valueText } from '../output.js'
import { durationFrom, limitFrom, shortTime, timeFrom, withDatabase } from './command.js'

type EventsFlags = Options & EventsRequest & { readonly last?: string; readonly limit: number }

export function registerEvents(program: Command, context: CliContext): void {
  const command = program
    .command('events')
    .description('list what has happened to documents, as far as their lifecycles keep it: the newest first')
    .argument('[id]', 'only of the document with this _id, with its own history: plain text, ObjectId or Extended JSON')
    .option('--lifecycle <name>', 'only of documents of this lifecycle')
    .option('--replica <name>', 'only what this replica has recorded')
    .option('--outcome <outcome>', 'only these ends of steps, such as error or moveTo')
    .option('--last <duration>', 'only what was recorded in this time, such as 2h', durationFrom)
    .option('--since <time>', 'only what was recorded from this time on, such as 2026-12-01T06:00:00Z', timeFrom)
    .option('--until <time>', 'only what was recorded before this time', timeFrom)
    .option('--limit <n>', 'at most this many, 1 to 10000', limitFrom, 50)
    .action((id: string | undefined, options: EventsFlags) =>
      lookAtDatabase(context, options, async (system) => {
        const { lifecycle, replica, outcome, last, since, until, limit } = options
        const from = last === undefined ? since : new Date(systemClock.now().getTime() - durationMs(last))
        const request = { id, lifecycle, replica, outcome, since: from, until, limit }
        const { events, more } = await listEvents(system, request)
        const { output } = context
        if (options.json) return output.json(events)
        if (events.length === 0) return output.line('no such events')
        output.table(['when', 'document', 'step', 'outcome', 'from -> to', 'took', 'by'], events.map(row))
        if (more) output.line(`(the newest ${limit}; --limit shows more)`)
      }),
    )
  withDatabase(command, [
    'events',
    'events order-4711',
    'events --lifecycle order --outcome error --last 2h',
    'events --replica api-2~f01c3b --since 2026-12-01T06:00:00Z --json',
  ])
}

const row = ({ at, lifecycle, document, step, outcome, reason, from, to, ms, by }: DocumentEvent): string[] => [
  shortTime(at),
  `${valueText(lifecycle)} ${idText(document)}`,
  valueText(step ?? '-'),
  `${valueText(outcome)}${reason ? `: ${valueText(reason).split('\n')[0]!.slice(0, 80)}` : ''}`,
  from === to ? valueText(from) : `${valueText(from)} -> ${valueText(to)}`,
  formatMs(Number(ms)),
  valueText(by),
]
