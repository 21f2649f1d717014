import { type Command, InvalidArgumentError } from 'commander'
import {
  ackCause,
  type CauseRow,
  type Causes,
  causeNamed,
  causes,
  causeText,
  countText,
  idText,
  isAcknowledged,
  quietText,
  unackCause,
} from '../../operations/index.js'
import { formatMs, fromNow } from '../../time/index.js'
import { byFrom, byOption } from '../by.js'
import { type CliContext, lookAtDatabase, type Options, onDatabase } from '../context.js'
import type { Output } from '../output.js'
import { watchingSystem } from '../watch.js'
import { durationFrom, merged, print, timeFrom, watchOption, withDatabase } from './command.js'

export function registerCauses(program: Command, context: CliContext): void {
  const command = program
    .command('causes')
    .description('list what needs a person: since when, how many documents, what changed before, what helped last time')
    .argument('[cause]', 'show only this one, with all that is known of it')
    .action((cause: string | undefined, options: Options) =>
      watchingSystem(context, lookAtDatabase, options, async (system, output) => {
        if (cause !== undefined) {
          const { row, now } = await causeNamed(system, cause)
          if (options.json) output.json(row)
          else printOne(output, row, now)
          return
        }
        const found = await causes(system)
        if (options.json) output.json(found)
        else printAll(output, found)
      }),
    )
  withDatabase(watchOption(command), [
    'causes',
    'causes --watch',
    'causes 3f9a0c1b22d4',
    'causes ack 3f9a0c1b22d4 --until 4h --note "the printer is on its way"',
  ])
  registerAck(command, context)
  registerUnack(command, context)
}

function registerAck(parent: Command, context: CliContext): void {
  const command = parent
    .command('ack')
    .description('say that you deal with a cause: it needs nobody else until then, or until its documents have doubled')
    .argument('<cause>', 'its id')
    .requiredOption(
      '--until <time>',
      'how long: a duration such as 4h, or a time such as 2026-12-01T06:00:00Z',
      untilFrom,
    )
    .option('--note <text>', 'what you do about it, for others to read: at most 500 characters')
    .action(async (cause: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      const { until, note } = options as { readonly until: string | Date; readonly note?: string }
      const done = await onDatabase(context, options, (system) =>
        ackCause(system, cause, { by: byFrom(options), until, note }),
      )
      const { ack, row } = done
      print(context, options, ack, `${row.id}: ${ack.by} has it until ${ack.until.toISOString()}`)
    })
  withDatabase(byOption(command), [
    'causes ack 3f9a0c1b22d4 --until 4h --note "the printer is on its way"',
    'causes ack 3f9a0c1b22d4 --until 2026-12-01T06:00:00Z --by ana',
  ])
}

function registerUnack(parent: Command, context: CliContext): void {
  const command = parent
    .command('unack')
    .description('end an acknowledgement, yours or that of another: the cause needs a person again')
    .argument('<cause>', 'its id')
    .action(async (cause: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      const ack = await onDatabase(context, options, (system) => unackCause(system, cause))
      print(context, options, ack, `${ack.cause}: ${ack.by} no longer has it`)
    })
  withDatabase(byOption(command), ['causes unack 3f9a0c1b22d4'])
}

function untilFrom(text: string): string | Date {
  if (/^\d{4}-/.test(text)) return timeFrom(text)
  try {
    return durationFrom(text)
  } catch {
    throw new InvalidArgumentError('expected a duration such as 4h, or a time such as 2026-12-01T06:00:00Z.')
  }
}

function printAll(output: Output, found: Causes): void {
  const { rows, more, needsYou, now, asOf, isOld, noCensus, unread, quiet } = found
  for (const line of unknownLines(found)) output.line(line)
  if (isOld && asOf) output.line(`as of ${fromNow(asOf, now)}`)
  if (rows.length === 0) {
    const known = noCensus.length > 0 || unread.length > 0 ? ' that is known' : ''
    output.line(`nothing${known} needs a person: ${quietText(quiet, now)}`)
    return
  }
  output.table(
    ['cause', 'what', 'lifecycle', 'documents', 'oldest', 'seen', 'trend', 'problem'],
    rows.map((row) => [
      ...[row.id, row.kind, row.lifecycle ?? '-', row.documents ? countText(row.documents) : '-'],
      ...[timeText(row.oldest, now), timeText(row.firstSeen, now), row.trend === 'unknown' ? '-' : row.trend],
      `${row.text}${ackText(row, now)}`,
    ]),
  )
  if (more.n > 0) output.line(`(${countText(more)} more)`)
  const acknowledged = rows.length - rows.filter((row) => !isAcknowledged(row)).length
  output.line()
  output.line(
    `${needsYou === 1 ? '1 needs' : `${needsYou} need`} a person${acknowledged > 0 ? `, ${acknowledged} acknowledged` : ''}; to see what helps: phaselock causes <cause>`,
  )
}

/** What is unknown, in lines. */
function unknownLines({ noCensus, unread }: Pick<Causes, 'noCensus' | 'unread'>): string[] {
  return [
    ...noCensus.map(({ lifecycle, why }) => `no census of ${lifecycle}: ${why}`),
    ...(unread.length > 0 ? [`unknown, because this user may not read it: ${unread.join(', ')}`] : []),
  ]
}

const timeText = (time: Date | null, now: Date): string => (time === null ? '-' : fromNow(time, now))

function ackText({ ack }: CauseRow, now: Date): string {
  if (!ack) return ''
  const note = ack.note === null ? '' : `: ${ack.note}`
  return ack.doubled
    ? ` [doubled since ${ack.by} acknowledged it${note}]`
    : ` [${ack.by} has it for ${formatMs(ack.until.getTime() - now.getTime())} more${note}]`
}

function printOne(output: Output, row: CauseRow, now: Date): void {
  const { id, oldest, firstSeen, lastSeen, trend, ids, versions, before, helped, action } = row
  output.line(`${id}: ${causeText(row)}${ackText(row, now)}`)
  output.line()
  output.table(
    ['oldest', 'first seen', 'last seen', 'trend', 'recorded by'],
    [
      [
        ...[oldest, firstSeen, lastSeen].map((time) => timeText(time, now)),
        ...[trend, versions.length > 0 ? versions.join(', ') : 'unknown'],
      ],
    ],
  )
  output.line()
  if (ids.length > 0) output.line(`such as: ${ids.map(idText).join(', ')}`)
  if (before.length === 0)
    output.line(
      firstSeen === null && oldest === null
        ? 'changed before: unknown, because nothing records when it began'
        : 'changed in the ten minutes before it was first seen: nothing that is recorded with a date',
    )
  else {
    output.line('changed in the ten minutes before it was first seen:')
    for (const { at, by, what } of before) output.line(`  ${timeText(at, now)}  ${by === null ? '' : `${by}: `}${what}`)
  }
  for (const one of helped)
    output.line(
      `tried before: ${one.action} by ${one.by} ${fromNow(one.endedAt, now)} (${one.operation}: ${one.ended}, ${one.done} done); ${FATE[one.cause]}`,
    )
  if (action) {
    output.line(`to act: ${action.command}`)
    output.line(`look first: ${action.preview}`)
  }
}

const FATE: Readonly<Record<CauseRow['helped'][number]['cause'], string>> = {
  gone: 'the cause did not come back within a day',
  back: 'the cause came back within a day',
  stayed: 'the cause stayed',
  unknown: 'nobody knows whether the cause went away',
}
