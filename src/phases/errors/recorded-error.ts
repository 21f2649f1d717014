import type { RecordedError } from '../../lock/index.js'
import { cut, textOf, tried } from './kept-text.js'

/** The most causes in an error's whole tree: an error that names itself, or thousands of others, must not cost a document. */
const MOST_CAUSES = 8
/** The part of a stack that is searched for the frames that are kept: it begins with the message, which may be of any length. */
const MOST_STACK = 16_000

type Cause = NonNullable<RecordedError['causes']>[number]

/** The record of anything that a handler threw: an Error, a string, undefined. Never throws itself. */
export function recordedError(thrown: unknown): RecordedError {
  const stack = isError(thrown) ? read(thrown, 'stack') : undefined
  const causes = causesOf(thrown)
  return {
    ...described(thrown, 'errorMessage'),
    ...(typeof stack === 'string' && { stack: cut(withoutOwnFrames(stack.slice(0, MOST_STACK)), 'errorStack') }),
    ...(causes.length > 0 && { causes }),
  }
}

/** ` (caused by Error: connect ECONNREFUSED 127.0.0.1:80)`, or nothing: to follow the error's own message. */
export function causesText(error: RecordedError): string {
  const lines = causeLines(error)
  return lines.length > 0 ? cut(` (caused by ${lines.join('; ')})`, 'errorMessage') : ''
}

/** The causes of a stored error, a line each, whatever its owner has made of it. */
export function causeLines(error: unknown): string[] {
  const causes = (error as RecordedError | null | undefined)?.causes
  if (!Array.isArray(causes)) return []
  return causes
    .filter((one): one is Cause => typeof one?.name === 'string' && typeof one.message === 'string')
    .map(({ name, message, code }) => {
      const type = code === undefined || message.includes(String(code)) ? name : `${name} ${code}`
      return message === '' ? type : `${type}: ${message}`
    })
}

function causesOf(thrown: unknown): Cause[] {
  const [seen, causes] = [new Set([thrown]), [] as Cause[]]
  for (const error of seen) {
    if (error !== thrown) causes.push(described(error, 'causeMessage'))
    if (causes.length === MOST_CAUSES) break
    for (const below of isError(error) ? belowOf(error) : []) seen.add(below)
  }
  return causes
}

function belowOf(error: Error): unknown[] {
  const [cause, errors] = [read(error, 'cause'), read(error, 'errors')]
  const several = Array.isArray(errors) ? (tried(() => errors.slice(0, MOST_CAUSES)) ?? []) : []
  return cause === undefined || cause === null ? several : [cause, ...several]
}

function described(thrown: unknown, kind: 'errorMessage' | 'causeMessage'): Cause {
  if (!isError(thrown)) return { name: 'Thrown', message: cut(textOf(thrown), kind) }
  const code = read(thrown, 'code')
  return {
    name: cut(textOf(read(thrown, 'name'), 'Error'), 'errorName'),
    message: cut(textOf(read(thrown, 'message'), ''), kind),
    ...(typeof code === 'string' && { code: cut(code, 'errorName') }),
    ...(typeof code === 'number' && { code }),
  }
}

const isError = (thrown: unknown): thrown is Error => tried(() => thrown instanceof Error) === true
const read = (error: Error, field: string): unknown => tried(() => (error as unknown as Record<string, unknown>)[field])

/** The folder of the phases, with this file and the engine: frames of the code that called the handler say nothing about its error. */
const OWN_FOLDER = new URL('..', import.meta.url).pathname

const withoutOwnFrames = (stack: string): string =>
  stack.includes(OWN_FOLDER)
    ? stack
        .split('\n')
        .filter((line) => !(line.includes(OWN_FOLDER) && /^\s*at /.test(line)))
        .join('\n')
    : stack
