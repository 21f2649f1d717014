import { hash } from 'node:crypto'
import { CANCELLED, type EndKind, type RecordedError } from '../../lock/index.js'
import { shown } from './kept-text.js'
import { templateOf } from './message-template.js'

/** The most characters of a trouble's text. */
const MOST_TEXT = 200

/** A cause: of an error that handlers throw, or of a park. */
export interface Cause {
  /** 12 hex digits: the same for errors that differ in their values only, in every process and version. */
  readonly cause: string
  /** The message without its values, with the codes of the error's causes, at most 200 characters. */
  readonly text: string
}

/**
 * The cause of a recorded error: its name, its code, its message without its values, the first frame of the user's code without its line, and the codes
 * of its causes. Computed from what is stored, so that documents of older versions have the same. Linear in the recorded error, which is bounded;
 * never throws.
 * @param id the `_id` of its document
 */
export function causeOfError(error: Partial<RecordedError>, id?: unknown): Cause {
  const { name, message, code } = error
  const type = textIn(name) || 'Error'
  // The reason of a cancel is a person's own text.
  const template = type === CANCELLED ? '' : templateOf(textIn(message), id)
  const causes = causesOf(error.causes, id)
  const parts = [type, codeIn(code), template, frameOf(error.stack), ...causes]
  // The message of `fetch` is 'fetch failed': only its cause says why.
  const more = causes.filter((one) => !template.includes(one)).join(', ')
  return { cause: digest(parts.join('\0')), text: `${template || type}${more && ` (${more})`}`.slice(0, MOST_TEXT) }
}

/** The longest name that `causeOf` may return. */
const LONGEST_NAME = 200

/** The causes of a lifecycle's errors and parks, when they are recorded. */
export class CausesOfErrors {
  private isReported = false

  /**
   * @param named the lifecycle's `causeOf`: a name makes the cause; undefined leaves it to {@link causeOfError}
   * @param report called once, when `causeOf` throws or returns anything else
   */
  constructor(
    private readonly named: ((error: unknown) => string | undefined) | undefined,
    private readonly report: (problem: string) => void,
  ) {}

  /** The cause of an error that a handler threw, or that recording its outcome brought. */
  of(thrown: unknown, recorded: RecordedError, id: unknown): string {
    const name = this.named && this.nameOf(thrown, this.named)
    return name === undefined ? causeOfError(recorded, id).cause : digest(`named\0${name}`)
  }

  /** The end with a cause, if it stores an error or a reason to park and has none yet. */
  in(end: EndKind, id: unknown): EndKind {
    if (end.kind !== 'park' && end.kind !== 'error') return end
    const { error } = end
    if (error?.cause !== undefined) return end
    if (error) return { ...end, error: { ...error, cause: causeOfError(error, id).cause } }
    if (end.kind !== 'park') return end
    return { ...end, cause: causeOfError({ name: PARKED, message: end.reason }, id).cause }
  }

  private nameOf(thrown: unknown, named: (error: unknown) => unknown): string | undefined {
    try {
      const name = named(thrown)
      if (name === undefined) return undefined
      if (typeof name === 'string' && name !== '' && name.length <= LONGEST_NAME) return name
      // The rejection of a promise that nobody awaits would end the process.
      if (name instanceof Promise) name.catch(() => undefined)
      this.failed(`expected the name of a cause (1 to ${LONGEST_NAME} characters) or undefined, got ${shown(name)}`)
    } catch (error) {
      this.failed(`it threw ${shown(error)}`)
    }
    return undefined
  }

  private failed(problem: string): void {
    if (this.isReported) return
    this.isReported = true
    this.report(
      `causeOf: ${problem}; causes of such errors are taken from the errors themselves (this is reported once)`,
    )
  }
}

/** The name of the error that a handler's decision to park leaves in its document. */
const PARKED = 'Parked'

export const CAUSE = /^[0-9a-f]{12}$/

const digest = (text: string): string => hash('sha1', text, 'hex').slice(0, 12)

// A document is its owner's to edit, so each part of a stored error may be anything.
const textIn = (value: unknown): string => (typeof value === 'string' ? value : '')
const codeIn = (value: unknown): string => (typeof value === 'number' ? String(value) : textIn(value))

/** Each once and in order: the addresses that a connection was tried at vary in number. A cause without a code counts by its message. */
function causesOf(causes: unknown, id: unknown): string[] {
  if (!Array.isArray(causes)) return []
  const known = causes.map((one) => {
    const { name, message, code } = Object(one) as Partial<RecordedError>
    return codeIn(code) || `${textIn(name)}: ${templateOf(textIn(message), id)}`
  })
  return [...new Set(known)].sort()
}

const FRAME = 'at '

/** The first frame of the user's code: its function and file, without line and folder. Code of packages and of Node is no user's. */
function frameOf(stack: unknown): string {
  const text = textIn(stack)
  for (let from = 0; from < text.length; ) {
    const newline = text.indexOf('\n', from)
    const to = newline === -1 ? text.length : newline
    const line = text.slice(from, to).trim()
    from = to + 1
    if (line.startsWith(FRAME) && !isForeign(line)) return placeOf(line.slice(FRAME.length))
  }
  return ''
}

const isForeign = (line: string): boolean =>
  line.includes('node:') || line.includes('node_modules') || line.includes('(<anonymous>)') || line.includes('(native)')

/** `async Packing (file:///app/dist/order.js:12:3)` is `Packing dist/order.js`. */
function placeOf(frame: string): string {
  const open = frame.lastIndexOf('(')
  const called = open > 0 ? frame.slice(0, open).trim() : ''
  const where = open > 0 ? frame.slice(open + 1).replace(')', '') : frame
  const name = called.replace('async ', '').split(' [as ', 1)[0]
  const file = withoutLine(where.replace('async ', ''))
  const parts = file.replaceAll('\\', '/').split('/').slice(-2).map(withoutBuild)
  return `${name} ${parts.join('/')}`
}

function withoutLine(place: string): string {
  let end = place.length
  while (end > 0 && (place[end - 1] === ':' || isDigit(place.charCodeAt(end - 1)))) end -= 1
  return place.slice(0, end)
}

const isDigit = (code: number): boolean => code >= 48 && code <= 57

/** Without the digest that bundlers put into the name of a file: `main-3fa2b1c4.js`. */
const withoutBuild = (file: string): string =>
  file.length > 200 ? '' : file.replace(/[-.](?=[A-Za-z]*\d)[A-Za-z0-9_]{6,64}(?=\.[cm]?js$)/, '')
