import { inspect, styleText } from 'node:util'
import { BSON } from 'mongodb'
import { type Logger, loggerOf } from '../phases/index.js'
import { systemClock } from '../time/index.js'

export type LogFormat = 'json' | 'pretty'
export type LogLevel = keyof Logger | 'silent'

export interface LineLoggerOptions {
  /** `json`: one object a line, for machines; `pretty`: for people. */
  readonly format: LogFormat
  /** The lowest level that is written. */
  readonly level: LogLevel
  /** The destination of the lines. Default: standard error, so that standard output has only the command's result. */
  readonly destination?: { write(line: string): unknown; readonly isTTY?: boolean } | undefined
}

const LEVELS: readonly LogLevel[] = ['debug', 'info', 'warn', 'error', 'silent']
const COLORS = { debug: 'dim', info: 'green', warn: 'yellow', error: 'red' } as const
/** The maximum number of characters of one string in a line, and of a stack with its causes: writing it holds up the event loop. */
const MOST_CHARACTERS = 4_000
const MOST_OF_STACK = 20_000
const MOST_CAUSES = 8

/**
 * Writes one line for each call. Errors in fields keep their type, message, stack, causes and other fields; ids are written as users type
 * them.
 */
export function lineLogger({ format, level: least, destination = process.stderr }: LineLoggerOptions): Logger {
  const isColored = destination.isTTY === true && !process.env['NO_COLOR']
  const lineOf = format === 'json' ? jsonLine : (...line: LineParts) => prettyLine(isColored, ...line)
  return loggerOf((level, message, fields = {}) => {
    if (LEVELS.indexOf(level) < LEVELS.indexOf(least)) return
    destination.write(`${lineOf(level, message, fields)}\n`)
  })
}

type LineParts = [level: keyof Logger, message: string, fields: object]

function jsonLine(...[level, msg, fields]: LineParts): string {
  const line = { level, time: systemClock.now().toISOString(), msg }
  try {
    return JSON.stringify({ ...line, ...fields }, plain)
  } catch {
    // A cycle, or a `toJSON` that throws.
    return JSON.stringify({ ...line, fields: inspected(fields) })
  }
}

/** `12:00:01.234 WARN  a step failed  lifecycle=order id=o1`; errors are shown with type and messages here, and their stack below. */
function prettyLine(isColored: boolean, ...[level, message, fields]: LineParts): string {
  const dim = (text: string) => (isColored ? styleText('dim', text, { validateStream: false }) : text)
  const name = level.toUpperCase().padEnd(5)
  const shownName = isColored ? styleText(COLORS[level], name, { validateStream: false }) : name
  const errors = Object.values(fields).filter((value) => value instanceof Error)
  const cells = Object.entries(fields)
    .filter(([, value]) => value !== undefined && !(value instanceof Error && message.includes(value.message)))
    .map(([key, value]) => `${key}=${value instanceof Error ? messages(value) : cell(value)}`)
  const time = systemClock.now().toTimeString().slice(0, 8)
  const stacks = level === 'error' || level === 'debug' ? errors.map((error) => `\n${dim(stackOf(error))}`) : []
  return [[dim(time), shownName, message].join(' '), ...cells.map(dim)].join('  ') + stacks.join('')
}

const inspected = (value: unknown): string =>
  inspect(value, { depth: 4, maxArrayLength: 50, maxStringLength: MOST_CHARACTERS, breakLength: Infinity })

function cell(value: unknown): string {
  if (typeof value === 'string')
    return /^[^\s="]+$/.test(value) ? value : JSON.stringify(value.slice(0, MOST_CHARACTERS))
  return value instanceof BSON.ObjectId ? value.toHexString() : inspected(value)
}

function plain(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return String(value)
  if (typeof value === 'string' && value.length > MOST_OF_STACK) return value.slice(0, MOST_OF_STACK)
  if (!(value instanceof Error)) return value
  const { name: _name, message: _message, stack: _stack, cause: _cause, ...others } = value
  return { type: value.name, message: messages(value), stack: stackOf(value), ...others }
}

/** An error and its causes, the outermost first. */
function chainOf(error: Error): Error[] {
  const chain = [error]
  for (let cause = error.cause; cause instanceof Error && chain.length < MOST_CAUSES; cause = cause.cause) {
    if (chain.includes(cause)) break
    chain.push(cause)
  }
  return chain
}

const messages = (error: Error): string =>
  chainOf(error)
    .map(({ message }) => message.slice(0, MOST_CHARACTERS))
    .join(': ')

const stackOf = (error: Error): string =>
  chainOf(error)
    .map(({ stack, name, message }) => (stack ?? `${name}: ${message}`).slice(0, MOST_CHARACTERS))
    .join('\ncaused by: ')
    .slice(0, MOST_OF_STACK)
