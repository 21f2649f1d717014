import { BSON } from 'mongodb'
import { recordedError } from '../phases/index.js'
import type { Json } from './definition/schedule-fields.js'
import { present, type RunDocument, type RunError, type RunLine } from './documents.js'

const FIRST_LINES = 50
const LATEST_LINES = 150
const LINE_LENGTH = 1_000
const MOST_FIELDS_BYTES = 4_096
const MOST_COUNTERS = 100
const COUNTER = /^[A-Za-z_][\w-]{0,99}$/
const MOST_RESULT_BYTES = 64 * 1024

/** What a task reports of its run while it runs; bounded, whatever it reports. */
export class RunRecord {
  private readonly first: RunLine[]
  private readonly latest: RunLine[] = []
  private dropped: number
  private readonly counters = new Map<string, number>()

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
      ...(fields === undefined ? {} : { fields: asJson(fields, MOST_FIELDS_BYTES) ?? '(not JSON, or too large)' }),
    }
    if (this.first.length < FIRST_LINES) this.first.push(line)
    else this.latest.push(line)
    if (this.latest.length > LATEST_LINES) {
      this.latest.shift()
      this.dropped += 1
    }
  }

  count(counter: string, by = 1): void {
    if (typeof by !== 'number' || !Number.isFinite(by)) throw new TypeError(`count('${counter}'): expected a number`)
    if (!COUNTER.test(counter)) {
      throw new TypeError(`count: expected a name of letters, digits, _ and -, got '${counter}'`)
    }
    if (!this.counters.has(counter) && this.counters.size >= MOST_COUNTERS) return
    this.counters.set(counter, (this.counters.get(counter) ?? 0) + by)
  }

  fields(): Pick<RunDocument, 'log' | 'logDropped' | 'counters'> {
    const log = [...this.first, ...this.latest]
    return present({
      log: log.length > 0 ? log : undefined,
      logDropped: this.dropped || undefined,
      counters: this.counters.size > 0 ? Object.fromEntries(this.counters) : undefined,
    })
  }
}

/** What a task returned, if it is JSON of at most 64 KB. */
export const resultOf = (value: unknown): Json | undefined =>
  value === undefined ? undefined : asJson(value, MOST_RESULT_BYTES)

/** Counters of a document, as far as a run can have them. */
export function countersOf(value: unknown): RunDocument['counters'] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
  const counted = Object.entries(value).filter(([name, n]) => COUNTER.test(name) && Number.isFinite(n))
  return counted.length > 0 ? Object.fromEntries(counted.slice(0, MOST_COUNTERS)) : undefined
}

/** What was thrown, or was stored of it, within bounds. */
export function runErrorOf(thrown: unknown): RunError {
  const { name, message, stack } = isStored(thrown) ? thrown : errorOf(thrown)
  const { code, causes } = isStored(thrown) ? thrown : recordedError(thrown)
  return present({
    name: name.slice(0, 200),
    message: message.slice(0, 2_000),
    stack: stack?.slice(0, 4_000) || undefined,
    code,
    causes,
  })
}

const isStored = (value: unknown): value is RunError =>
  !(value instanceof Error) &&
  typeof value === 'object' &&
  [(value as RunError | null)?.name, (value as RunError | null)?.message].every((text) => typeof text === 'string')

/** What was thrown, as a readable error: whatever it is, the run has to come to its end. */
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

function textOf(value: unknown): string {
  try {
    return String(value)
  } catch {
    return UNREADABLE
  }
}

function asJson(value: unknown, mostBytes: number): Json | undefined {
  try {
    const text = JSON.stringify(value)
    if (text === undefined || Buffer.byteLength(text) > mostBytes) return undefined
    const json = JSON.parse(text) as Json
    // It has to go into a document: keys with a null byte can't.
    BSON.serialize({ json })
    return json
  } catch {
    return undefined
  }
}
