import { types } from 'node:util'
import { BSON } from 'mongodb'
import { whyNotStorable } from '../lock/index.js'
import { shown, withErrors } from '../options/index.js'
import { recordedError, textOf } from '../phases/index.js'
import type { Json } from './definition/schedule-fields.js'
import { present, type RunDocument, type RunError, type RunLine } from './documents.js'

const FIRST_LINES = 50
const LATEST_LINES = 150
const LINE_LENGTH = 1_000
const MOST_FIELDS_BYTES = 4_096
const MOST_COUNTERS = 100
const COUNTER = /^[A-Za-z_][\w-]{0,99}$/
const MOST_RESULT_BYTES = 64 * 1024
/** The maximum number of values that are named as not kept. */
const MOST_NOT_KEPT = 10

/** The log, counters and result that a task reports of its run; bounded, whatever it reports. */
export class RunRecord {
  private readonly first: RunLine[]
  private readonly latest: RunLine[] = []
  private dropped: number
  private readonly counters = new Map<string, number>()
  private readonly notKept = new Set<string>()

  constructor(
    run: Readonly<RunDocument>,
    private readonly now: () => Date,
  ) {
    this.first = (run.log ?? []).slice(0, FIRST_LINES)
    this.latest.push(...(run.log ?? []).slice(FIRST_LINES))
    this.dropped = run.logDropped ?? 0
  }

  log(message: string, fields?: Json): void {
    const line: RunLine = {
      at: this.now(),
      message: textOf(message).slice(0, LINE_LENGTH),
      ...(fields === undefined ? {} : { fields: fieldsOf(fields) }),
    }
    if (this.first.length < FIRST_LINES) this.first.push(line)
    else this.latest.push(line)
    if (this.latest.length > LATEST_LINES) {
      this.latest.shift()
      this.dropped += 1
    }
  }

  /** Adds to a counter. Never throws: a counter that can't be kept is no reason for the run to fail. */
  count(counter: string, by = 1): void {
    const problem = this.problemOf(counter, by)
    if (problem) this.drop(`counter ${shown(counter).slice(0, 200)}: ${problem}`)
    else this.counters.set(counter, (this.counters.get(counter) ?? 0) + by)
  }

  /** Takes over the counters of the document that a task has started, whatever they are. */
  takeOver(counters: unknown): void {
    if (typeof counters !== 'object' || counters === null || Array.isArray(counters)) return
    for (const [name, n] of Object.entries(counters)) this.count(name, n as number)
  }

  private problemOf(counter: unknown, by: unknown): string | undefined {
    if (typeof counter !== 'string' || !COUNTER.test(counter))
      return 'expected a name of letters, digits, _ and -, at most 100 characters'
    if (!Number.isFinite(by)) return `expected a number, got ${shown(by)}`
    return this.counters.size < MOST_COUNTERS || this.counters.has(counter)
      ? undefined
      : `expected at most ${MOST_COUNTERS} counters`
  }

  /** The value that a task, or the document that it started, has returned. */
  result(value: unknown): { result?: Json } {
    if (value === undefined) return {}
    const read = asJson(value, MOST_RESULT_BYTES)
    if ('json' in read) {
      for (const lost of read.lost) this.drop(`result: ${lost}`)
      return { result: read.json }
    }
    this.drop(`result: ${read.problem}`)
    return {}
  }

  private drop(problem: string): void {
    if (this.notKept.size < MOST_NOT_KEPT) this.notKept.add(problem)
  }

  fields(): Pick<RunDocument, 'log' | 'logDropped' | 'counters' | 'notKept'> {
    const log = [...this.first, ...this.latest]
    return present({
      log: log.length > 0 ? log : undefined,
      logDropped: this.dropped || undefined,
      counters: this.counters.size > 0 ? Object.fromEntries(this.counters) : undefined,
      notKept: this.notKept.size > 0 ? [...this.notKept] : undefined,
    })
  }
}

function fieldsOf(fields: unknown): Json {
  const read = asJson(fields, MOST_FIELDS_BYTES)
  return 'json' in read ? read.json : '(not JSON, or too large)'
}

export const runErrorOf = (thrown: unknown): RunError => withinBounds({ ...recordedError(thrown), ...textsOf(thrown) })

const textsOf = (thrown: unknown) => {
  const { name, message, stack } = errorOf(thrown)
  return { name, message, stack }
}

/** An error as stored in a document, with its texts cut to what a run keeps. */
export function withinBounds({ name, message, stack, code, causes }: Partial<Loose<RunError>>): RunError {
  return present({
    name: String(name ?? 'Error').slice(0, 200),
    message: String(message).slice(0, 2_000),
    stack: typeof stack === 'string' ? stack.slice(0, 4_000) || undefined : undefined,
    code,
    causes,
  })
}

type Loose<T> = { readonly [K in keyof T]: T[K] | undefined }

/** The thrown value as a readable error: whatever it is, the run has to come to its end. */
export function errorOf(thrown: unknown): Error {
  try {
    if (!(thrown instanceof Error)) return new Error(textOf(thrown))
    const isReadable = [thrown.name, thrown.message, thrown.stack ?? ''].every((text) => typeof text === 'string')
    return isReadable ? thrown : new Error(textOf(thrown.message))
  } catch {
    return new Error(UNREADABLE)
  }
}

const UNREADABLE = "(something that can't be shown)"

/** `lost`: what JSON has no form for, and has therefore left out or emptied. */
type ReadJson = { readonly json: Json; readonly lost: readonly string[] } | { readonly problem: string }

function asJson(value: unknown, mostBytes: number): ReadJson {
  const expected = `expected JSON of at most ${mostBytes} bytes`
  const kind = typeof value === 'object' ? 'an object' : typeof value
  const lost: string[] = []
  let text: string | undefined
  try {
    text = JSON.stringify(value, (name, inner: unknown) => {
      const what = notInJson(inner)
      if (what && lost.length < MOST_NOT_KEPT) lost.push(`${name && `'${name.slice(0, 100)}' is `}${what}`)
      return withErrors(name, inner)
    })
  } catch (error) {
    return { problem: `${expected}, got ${kind} that JSON.stringify refuses (${errorOf(error).message.slice(0, 200)})` }
  }
  if (text === undefined) return { problem: `${expected}, got ${kind}` }
  const bytes = Buffer.byteLength(text)
  if (bytes > mostBytes) return { problem: `${expected}, got ${bytes} bytes` }
  try {
    const json = JSON.parse(text) as Json
    // It has to go into a document, as deep as a line of the log has it: keys with a null byte can't.
    BSON.serialize({ json })
    const problem = whyNotStorable({ log: [{ fields: json }] })
    if (problem !== undefined) throw new Error(problem)
    return { json, lost }
  } catch (error) {
    return {
      problem: `expected JSON that MongoDB can store, got ${kind} that it refuses (${errorOf(error).message.slice(0, 200)})`,
    }
  }
}

/** What JSON leaves out, or has as `{}` or null; undefined: it has this as it is, or as its class says by `toJSON`. */
function notInJson(value: unknown): string | undefined {
  if (typeof value === 'function' || typeof value === 'symbol') return `a ${typeof value}, which JSON leaves out`
  if (typeof value === 'number' && !Number.isFinite(value)) return `${value}, which JSON has as null`
  if (types.isPromise(value)) return 'a Promise, which JSON has as {}: await it'
  if (types.isMap(value)) return 'a Map, which JSON has as {}: use Object.fromEntries(map)'
  if (types.isSet(value)) return 'a Set, which JSON has as {}: use [...set]'
  return types.isRegExp(value) ? 'a RegExp, which JSON has as {}: use its source' : undefined
}
