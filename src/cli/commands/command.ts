import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import type { ReadStream } from 'node:tty'
import { type Command, InvalidArgumentError } from 'commander'
import type { Document } from 'mongodb'
import type { SettingKey } from '../../config/index.js'
import { isPlain } from '../../lock/index.js'
import { type DocumentRef, fromExtendedJson, UsageError } from '../../operations/index.js'
import { durationMs, fromNow, systemClock } from '../../time/index.js'
import type { CliContext, Options } from '../context.js'
import { addSettingOptions, DATABASE_SETTINGS } from '../setting-options.js'

/** Adds the parts that every command on the database has: its options, and examples below its help. */
export function withDatabase(
  command: Command,
  examples: readonly string[],
  settings: readonly SettingKey[] = [],
): void {
  command.option('--json', 'print one JSON value (relaxed Extended JSON) on one line')
  addSettingOptions(command, [...DATABASE_SETTINGS, ...settings]).addHelpText('after', exampleText(examples))
}

export const exampleText = (examples: readonly string[]): string =>
  examples.length === 0 ? '' : `\nExamples:\n${examples.map((line) => `  $ phaselock ${line}`).join('\n')}`

export const watchOption = (command: Command): Command =>
  command.option('--watch', 'show it again every second until Ctrl-C; with --json one line each time')

const AN_ID = "the document's _id: plain text, ObjectId or Extended JSON"

/** A command on one document, whose first argument is its `_id`. */
export const onDocument = (program: Command, name: string, description: string): Command =>
  inLifecycle(program.command(name).description(description).argument('<id>', AN_ID))

/** A command on documents, whose arguments are their `_id`s. */
export const onDocuments = (program: Command, name: string, description: string): Command =>
  inLifecycle(program.command(name).description(description).argument('<id...>', AN_ID))

const inLifecycle = (command: Command): Command =>
  command.option('--lifecycle <name>', 'look only in this lifecycle (default: all)')

/**
 * Acts on one document; if several lifecycles have its `_id`, a person at a terminal is asked to choose one.
 * @throws what `act` throws
 */
export async function onOneMeant<T>(
  { output, stdin }: CliContext,
  id: string,
  options: Options,
  act: (ref: DocumentRef) => Promise<T>,
): Promise<T> {
  try {
    return await act(refOf(id, options))
  } catch (error) {
    const obstacle = error instanceof UsageError ? error.obstacle : undefined
    if (obstacle?.reason !== 'ambiguousLifecycle' || options.json || !(stdin as ReadStream).isTTY) throw error
    const { lifecycles } = obstacle
    output.problem(`the _id ${id} is in several lifecycles:`)
    for (const [i, name] of lifecycles.entries()) output.problem(`  ${i + 1}  ${name}`)
    output.problem(`which one? [1-${lifecycles.length}]`)
    const lifecycle = lifecycles[Number(await answerFrom(stdin)) - 1]
    if (lifecycle === undefined) throw error
    return await act({ id, lifecycle })
  }
}

/** One line of standard input; undefined once it has ended. */
export async function answerFrom(stdin: Readable): Promise<string | undefined> {
  const lines = createInterface({ input: stdin })
  try {
    for await (const line of lines) return line.trim()
    return undefined
  } finally {
    lines.close()
  }
}

/** Asks a person to confirm; without a terminal, or with `--json`, the answer is no. */
export async function isYes(
  { output, stdin }: CliContext,
  options: Options,
  lines: readonly string[],
  question: string,
): Promise<boolean> {
  if (options.json || !(stdin as ReadStream).isTTY) return false
  for (const line of lines) output.problem(line)
  output.problem(`${question}? [y/N]`)
  return /^y(es)?$/i.test((await answerFrom(stdin)) ?? '')
}

export const refOf = (id: string, { lifecycle }: Options): DocumentRef => ({ id, lifecycle })

/** Prints the result, for machines or for people. */
export function print({ output }: CliContext, options: Options, done: unknown, sentence: string): void {
  if (options.json) output.json(done)
  else output.line(sentence)
}

/** The options of a subcommand; they take precedence over the same ones of its parent. */
export const merged = (command: Command): Options => command.optsWithGlobals()

/** `in 4 h`, `3 min ago` by this machine's clock; `-` for anything but a date. */
export const shortTime = (time: unknown): string =>
  time instanceof Date && !Number.isNaN(time.getTime()) ? fromNow(time, systemClock.now()) : '-'

export function limitFrom(text: string): number {
  const n = /^\d+$/.test(text) ? Number(text) : 0
  if (n >= 1 && n <= 10_000) return n
  throw new InvalidArgumentError('expected a whole number from 1 to 10000.')
}

/** A whole number from 1 on. */
export function countFrom(text: string): number {
  if (/^\d{1,9}$/.test(text) && Number(text) >= 1) return Number(text)
  throw new InvalidArgumentError('expected a whole number from 1 to 999999999.')
}

/** A duration, as given: `30s`. */
export function durationFrom(text: string): string {
  try {
    durationMs(text)
    return text
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message)
  }
}

/** A time with its zone: `2026-12-01T06:00:00Z`. */
export function timeFrom(text: string): Date {
  const time = new Date(text)
  if (/^\d{4}-\d\d-\d\dT.*(Z|[+-]\d\d:?\d\d)$/.test(text) && !Number.isNaN(time.getTime())) return time
  throw new InvalidArgumentError('expected a time with its zone, such as 2026-12-01T06:00:00Z.')
}

/**
 * A document from the command line, as JSON or Extended JSON (`{"at": {"$date": "2026-01-01T00:00:00Z"}}`).
 * @throws UsageError when it isn't a JSON object
 */
export function documentFrom(text: string): Document {
  let value: unknown
  try {
    value = fromExtendedJson(text, { useBigInt64: true }) // otherwise a Long loses its last digits
  } catch (error) {
    throw new UsageError(
      `expected a document as JSON, such as '{"name": "x"}', got ${text} (${(error as Error).message}); in a shell, quote it with '...'`,
    )
  }
  if (isPlain(value)) return value
  throw new UsageError(`expected a document as JSON, such as '{"name": "x"}', got ${text}`)
}
