import { type Command } from 'commander'
import { BSON } from 'mongodb'
import { isValid, termsOf, whyNotClaimable } from '../../lock/index.js'
import { explain } from '../../operations/index.js'
import type { Progress } from '../../phases/index.js'
import { formatMs } from '../../time/index.js'
import type { CliContext, Options } from '../context.js'
import type { Found, FoundOne } from '../documents/find-documents.js'
import type { Output } from '../output.js'
import type { Workspace } from '../workspace.js'
import { examples, nameOf, onDocument, withDocument } from './document-command.js'

export function registerShow(program: Command, context: CliContext): void {
  const command = program
    .command('show')
    .description('one document: what it waits for in one sentence, its fields and its history')
    .argument('<id>', "the document's _id: plain text, ObjectId or Extended JSON")
    .action((id: string, options: Options) =>
      onDocument(
        context,
        id,
        options,
        async (found, workspace) => print(context, options, found, await refusalOf(found, workspace)),
        'reads',
      ),
    )
  withDocument(command).addHelpText(
    'after',
    examples(
      'show shop',
      'show 66f0a1b2c3d4e5f60718293a',
      `show '{"$oid": "66f0a1b2c3d4e5f60718293a"}' --json`,
      'show shop --lifecycle api-gateway',
    ),
  )
}

/** A due document that no replica claims may be one that the server doesn't let them write. */
async function refusalOf(found: FoundOne, workspace: Workspace): Promise<string | undefined> {
  const { model } = found.lifecycle
  if (found.condition.kind !== 'due') return undefined
  const terms = termsOf(found.lockTimeoutMs, { progress: model.settings.progress })
  return whyNotClaimable(workspace.connection.db, model.collection, terms, found.document['_id'])
}

function print({ output }: CliContext, options: Options, found: FoundOne, refusal: string | undefined): void {
  const { lifecycle, document, condition, now } = found
  const explanation = explained(found)
  if (options['json']) {
    const also = found.also.map((other) => ({ lifecycle: other.lifecycle.model.name, explanation: explained(other) }))
    output.json({ lifecycle: lifecycle.model.name, condition, explanation, refusal, document, also })
    return
  }
  const { progress: field } = lifecycle.model.settings
  const { history, ...rest } = isOurProgress(found) ? ((document[field] ?? {}) as Progress) : {}
  output.line(`${nameOf(found)}: ${text(document['phase'])}`)
  output.line(explanation)
  if (refusal) output.line(`No replica can work on it: ${refusal}.`)
  output.line()
  printFields(output, [
    ...Object.entries(document).filter(([name]) => name !== field || !isOurProgress(found)),
    ...Object.entries(rest).map(
      ([name, value]) => [`${field}.${name}`, name === 'error' ? stackOf(value) : value] as const,
    ),
  ])
  const entries = Array.isArray(history) ? history.filter((entry) => entry && typeof entry === 'object') : []
  if (entries.length > 0) printHistory(output, entries, now)
  if (found.also.length > 0) printAlso(output, found.also)
}

/** An owner's own field of that name is shown as it is. */
function isOurProgress({ condition, lifecycle }: Found): boolean {
  return condition.kind !== 'broken' || condition.field !== lifecycle.model.settings.progress
}

const explained = ({ document, lifecycle, now, lockTimeoutMs }: Found) =>
  explain(document, lifecycle.model, now, lockTimeoutMs)

function printAlso(output: Output, also: readonly Found[]): void {
  output.line()
  output.line('With the same _id (--lifecycle shows them):')
  for (const other of also) {
    output.line(`  ${nameOf(other)}: ${text(other.document['phase'])}. ${explained(other)}`)
  }
}

function printFields(output: Output, fields: readonly (readonly [string, unknown])[]): void {
  const width = Math.max(0, ...fields.map(([name]) => name.length))
  const indent = `\n${' '.repeat(width + 4)}`
  for (const [name, value] of fields) output.line(`  ${name.padEnd(width)}  ${text(value).replaceAll('\n', indent)}`)
}

/** An error as it reads where it was thrown; whatever else stands there as it is. */
function stackOf(error: unknown): unknown {
  const { name, message, stack } = (error ?? {}) as Record<string, unknown>
  if (typeof name !== 'string' || typeof message !== 'string') return error
  return typeof stack === 'string' && stack !== '' ? stack : `${name}: ${message}`
}

function printHistory(output: Output, history: NonNullable<Progress['history']>, now: Date): void {
  output.line()
  output.table(
    ['when', 'step', 'outcome', 'from -> to', 'took', 'by'],
    history.map((entry) => [
      entry.at instanceof Date && isValid(entry.at)
        ? `${entry.at.toISOString()} (${formatMs(now.getTime() - entry.at.getTime())} ago)`
        : '?',
      text(entry.step ?? '-'),
      `${text(entry.outcome ?? '?')}${entry.count > 1 ? ` x ${entry.count}` : ''}${entry.reason ? `: ${text(entry.reason)}` : ''}`,
      entry.from === entry.to ? text(entry.from ?? '?') : `${text(entry.from)} -> ${text(entry.to)}`,
      formatMs(Number(entry.ms ?? 0)),
      text(entry.by ?? '?'),
    ]),
  )
}

function text(value: unknown): string {
  if (typeof value === 'string') return value
  if (value instanceof Date && !isValid(value)) return 'a date out of the range of JavaScript'
  if (value instanceof Date)
    return value.getTime() > 253_402_214_400_000 - 1 ? '9999-12-31 (parked)' : value.toISOString()
  if (value instanceof BSON.ObjectId) return `ObjectId("${value.toHexString()}")`
  return BSON.EJSON.stringify(value as never, { relaxed: true })
}
