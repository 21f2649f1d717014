import { PassThrough, type Writable } from 'node:stream'
import * as consumers from 'node:stream/consumers'
import { BSON } from 'mongodb'
import { isParked, isValid, withParts } from '../lock/index.js'

/**
 * The output of commands: results on standard output, errors on standard error. Nothing else writes to standard output,
 * so that a script reads only the command's result; log lines go to standard error.
 */
export class Output {
  /** True once its reader is gone. */
  isClosed = false

  constructor(
    private readonly out: Writable & { readonly isTTY?: boolean; readonly rows?: number } = process.stdout,
    private readonly err: Writable = process.stderr,
  ) {
    // `phaselock list | head` closes the pipe early: that is not a failure.
    this.out.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error
      this.isClosed = true
    })
  }

  /** Prints what `draw` writes as a frame. On a terminal it replaces the frame before; elsewhere it is followed by an empty line. */
  async frame(draw: (output: Output) => Promise<void>, isFirst: boolean): Promise<void> {
    const drawn = new PassThrough({ encoding: 'utf8' })
    const text = consumers.text(drawn)
    await draw(new Output(drawn, this.err)).finally(() => drawn.end())
    const lines = (await text).split('\n').slice(0, -1)
    if (!this.out.isTTY) return this.raw(`${lines.join('\n')}\n\n`)
    const { rows = lines.length + 1 } = this.out
    const shown = lines.length < rows ? lines : [...lines.slice(0, rows - 2), `(${lines.length - rows + 2} more lines)`]
    const [home, clear, toLineEnd, toEnd] = ['\x1b[H', '\x1b[2J', '\x1b[K', '\x1b[J']
    this.raw(`${isFirst ? clear : ''}${home}${shown.map((line) => `${line}${toLineEnd}\n`).join('')}${toEnd}`)
  }

  line(text = ''): void {
    this.out.write(`${printable(text)}\n`)
  }

  /** One value on one line, as relaxed Extended JSON: ids and dates keep their types, whole numbers beyond 2^53 their digits. */
  json(value: unknown): void {
    this.out.write(`${relaxedJson(value)}\n`)
  }

  /** A table with columns aligned for people. */
  table(head: readonly string[], rows: readonly (readonly string[])[]): void {
    const shown = rows.map((row) => row.map((cell) => printable(cell).replaceAll('\n', '\\n')))
    const widths = head.map((name, i) => Math.max(name.length, ...shown.map((row) => narrow(row[i]))))
    for (const cells of [head.map((name) => name.toUpperCase()), ...shown]) {
      const padded = cells.map((cell, i) => cell.padEnd(widths[i]!))
      this.line(padded.join('  ').trimEnd())
    }
  }

  /** Text that is printed unchanged, such as a help page. */
  raw(text: string): void {
    this.out.write(text)
  }

  problem(text: string): void {
    const shown = printable(text)
    this.err.write(shown.endsWith('\n') ? shown : `${shown}\n`)
  }
}

/** The widest cell that widens its column. A wider one stands out of it, because one odd value must not push all rows apart. */
const WIDEST = 120
const narrow = (cell = ''): number => (cell.length > WIDEST ? 0 : cell.length)

/**
 * Text that is safe to print. Documents may hold anything: a character that would move a terminal's cursor, color text or turn its
 * direction is shown as its code.
 */
const printable = (text: string): string =>
  text.replace(UNPRINTABLE, (character) => {
    const code = character.charCodeAt(0).toString(16)
    return code.length > 2 ? `\\u${code.padStart(4, '0')}` : `\\x${code.padStart(2, '0')}`
  })
// biome-ignore lint/suspicious/noControlCharactersInRegex: it is about them
const UNPRINTABLE = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

/** A stored value for people: any client may have stored anything in a document. */
export function valueText(value: unknown): string {
  if (typeof value === 'string') return value
  if (value instanceof Date && !isValid(value)) return 'a date outside the range of JavaScript'
  if (value instanceof Date) return isParked({ lockedAt: value }) ? '9999-12-31 (parked)' : value.toISOString()
  if (value instanceof BSON.ObjectId) return `ObjectId("${value.toHexString()}")`
  return relaxedJson(value)
}

const relaxedJson = (value: unknown): string => BSON.EJSON.stringify(withLongs(value), { relaxed: true })

/** Keeps large whole numbers, which relaxed Extended JSON would round. */
const withLongs = (value: unknown): unknown =>
  withParts(value, (part) => {
    const isRounded = (typeof part === 'bigint' || BSON.Long.isLong(part)) && !Number.isSafeInteger(Number(part))
    return isRounded ? { $numberLong: String(part) } : part
  })
