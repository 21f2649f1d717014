/*
 * The template of a message: its words, without the values of this one occurrence. "pods "web-7f9c" not found" and "pods "api-1" not found" have the
 * same: `pods # not found`. One pass over at most 2,000 characters, stopped as soon as the template is long enough.
 */

/** The most characters of a message that are read: as many as are kept of it, so that a stored message has the template of the thrown one. */
const MOST_READ = 2_000
/** The most characters of a template. A message that goes on (a page of HTML, a dump) differs there without being another cause. */
const MOST_TEMPLATE = 400
/** What stands for a value, and for several in a row. */
const VALUE = '#'

const [SPACE, LETTER, DIGIT, QUOTE, BREAK, MARK] = [0, 1, 2, 3, 4, 5] as const
type Kind = typeof SPACE | typeof LETTER | typeof DIGIT | typeof QUOTE | typeof BREAK | typeof MARK

const KINDS: readonly Kind[] = Array.from({ length: 256 }, (_, code): Kind => {
  const char = String.fromCharCode(code)
  if (code <= 32 || code === 127 || code === 160) return SPACE
  if (/[A-Za-z_$\u00c0-\u00ff]/.test(char)) return LETTER
  if (/\d/.test(char)) return DIGIT
  if (/["'`]/.test(char)) return QUOTE
  return /[()[\]{}<>,;=|]/.test(char) ? BREAK : MARK
})

function kindAt(text: string, at: number): Kind {
  const code = text.charCodeAt(at)
  if (code < 256) return KINDS[code]!
  if (code === 0x3000) return SPACE
  if ((code >= 0x2000 && code < 0x2070) || code === 0x3001 || code === 0x3002) return MARK
  return DIGITS.test(text[at]!) ? DIGIT : LETTER
}
const DIGITS = /\p{Nd}/u

/** True for a letter of a script that puts no spaces between words: Thai to Khmer, Chinese, Japanese. Numbers and names stand right beside it. */
function isUnspacedAt(text: string, at: number): boolean {
  const code = text.charCodeAt(at)
  if (code < 0x0e00 || kindAt(text, at) !== LETTER) return false
  return code >= 0x2e80 || code < 0x0f00 || (code >= 0x1000 && code < 0x10a0) || (code >= 0x1780 && code < 0x1800)
}

const isWordAt = (text: string, at: number): boolean => {
  if (at < 0 || at >= text.length) return false
  const kind = kindAt(text, at)
  return (kind === LETTER || kind === DIGIT) && !isUnspacedAt(text, at)
}

const COLON = 58
const HYPHEN = 45

/** Words before a number that is no value but says what has happened: a status, an error code, an exit code, a signal. */
const NUMBERED = new Set(
  'code status statuscode errorcode errcode exitcode errno http signal sqlstate state http-code'.split(' '),
)
/** Words before an HTTP status alone. */
const ANSWERED = new Set('response responded returned answered with'.split(' '))
const DATE_WORDS = new Set('Mon Tue Wed Thu Fri Sat Sun Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split(' '))
const UNITS = new Set(
  'ms s m h d us ns sec secs min mins millisecond milliseconds second seconds minute minutes hour hours day days B byte bytes kB KB MB GB TB KiB MiB GiB TiB'.split(
    ' ',
  ),
)
/** Words that follow a number, with and without their s: "1 time", "2 times". */
const COUNTED = new Set(
  'times errors attempts bytes characters connections documents files items nodes pods records replicas requests rows slots steps'.split(
    ' ',
  ),
)
/** Fields of a JSON body whose values say what has happened. */
const TELLING_FIELDS = new Set('reason code type status error errorCode kind'.split(' '))
const PLAIN = /^[A-Za-z][A-Za-z_.]{0,40}$/

/** Puts a template together. */
class Template {
  text = ''
  /** The marks and the space since the last word or value. */
  private between = ''
  private isAfterValue = false
  /** The last word; empty: a value came after it. */
  private last = ''
  private field = ''

  get isFull(): boolean {
    return this.text.length >= MOST_TEMPLATE
  }

  space(): void {
    if (!this.between.endsWith(' ')) this.mark(' ')
  }

  mark(char: string): void {
    if (this.between.length < 8) this.between += char
  }

  /** Values with nothing but marks between them are one: an address with its port, a date, a list of any length. */
  value(): void {
    if (!this.isAfterValue) this.text += `${this.between.replace(/[-+~%[]$/, '')}${VALUE}`
    this.between = ''
    this.isAfterValue = true
    this.last = ''
    this.field = ''
  }

  word(word: string): void {
    const isCounted = this.isAfterValue && this.between === ' '
    if (isCounted && UNITS.has(word)) {
      this.between = ''
      return
    }
    this.text += `${this.between}${isCounted && COUNTED.has(word) ? word.slice(0, -1) : word}`
    this.between = ''
    this.isAfterValue = false
    this.last = word
    this.field = ''
  }

  /** A word of digits, or with some. */
  numbered(word: string, isNumber: boolean): void {
    // The names of an index (email_1), and of a cause of Node.
    const isName = !isNumber && (this.last === 'index' || word.startsWith('ERR_'))
    if (isName || (isNumber && this.tells(word))) this.word(word)
    else this.value()
  }

  private tells(number: string): boolean {
    const last = this.last.toLowerCase()
    if (NUMBERED.has(last)) return number.length <= 5
    return ANSWERED.has(last) && number.length === 3 && (number[0] === '4' || number[0] === '5')
  }

  quoted(content: string, isFollowedByColon: boolean): void {
    const isField = isFollowedByColon && (this.between.endsWith('{') || this.between.endsWith(','))
    const isKept = (isField || TELLING_FIELDS.has(this.field)) && PLAIN.test(content)
    if (isKept) this.word(content)
    else this.value()
    if (isKept && isField) this.field = content
  }
}

/**
 * The words of a message, with `#` for its values: numbers, hex, UUIDs, dates, addresses, quoted text, URLs, paths, names with digits, and the `_id` of
 * its own document. Numbers that say what has happened stay: `status code 404`. Linear in the first 2,000 characters; never throws.
 * @param id the document's `_id`; undefined: none is known
 * @example templateOf('connect ECONNREFUSED 10.0.0.7:443') // 'connect ECONNREFUSED #'
 */
export function templateOf(message: string, id?: unknown): string {
  const text = withoutOwn(message.slice(0, MOST_READ), id)
  const isCut = message.length >= MOST_READ
  const template = new Template()
  /** The quotes that have no end from here on: none of them is looked for again. */
  const endless = new Set<string>()
  let at = 0
  while (at < text.length && !template.isFull) {
    const kind = kindAt(text, at)
    const char = text[at]!
    if (kind === SPACE) {
      template.space()
      at += 1
      continue
    }
    if (kind === QUOTE) {
      const end = opens(text, at) && !endless.has(char) ? endOfQuote(text, at) : -1
      if (end > 0) {
        template.quoted(text.slice(at + 1, end), text.charCodeAt(end + 1) === COLON)
        at = end + 1
        continue
      }
      if (opens(text, at)) {
        endless.add(char)
        if (isCut) template.value() // its end is in the part that isn't read
        if (isCut) break
      }
    }
    if (kind === QUOTE || kind === BREAK) {
      template.mark(char)
      at += 1
      continue
    }
    const chunk = text.slice(at, endOfChunk(text, at))
    if (isLocation(chunk)) {
      template.value()
      at = endOfLocation(text, at + chunk.length)
    } else {
      if (isValue(chunk)) template.value()
      else addWords(template, chunk)
      at += chunk.length
    }
  }
  return template.text.slice(0, MOST_TEMPLATE)
}

/** An apostrophe within a word opens nothing. */
const opens = (text: string, at: number): boolean => text[at] !== "'" || !isWordAt(text, at - 1)

/** The place of the quote that ends the text which the one at `at` begins; -1: none does. */
function endOfQuote(text: string, at: number): number {
  const quote = text[at]!
  for (let end = text.indexOf(quote, at + 1); end !== -1; end = text.indexOf(quote, end + 1)) {
    const isWithin = text[end - 1] === '\\' || (quote === "'" && isWordAt(text, end + 1))
    if (!isWithin) return end
  }
  return -1
}

/** The end of what stands together: up to a space, a bracket, a separator or a quote. */
function endOfChunk(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at += 1) {
    const kind = kindAt(text, at)
    if (kind === SPACE || kind === BREAK || (kind === QUOTE && opens(text, at))) return at
  }
  return text.length
}

const ENDS_LOCATION = new Set(['"', "'", '`', '<', '>', ')', '|'])

/** A URL or path may have `=`, `,` and `;` in it. */
function endOfLocation(text: string, from: number): number {
  let at = from
  while (at < text.length && kindAt(text, at) !== SPACE && !ENDS_LOCATION.has(text[at]!)) at += 1
  return at
}

function isLocation(chunk: string): boolean {
  if (chunk.length < 2) return false
  if (chunk.includes('://') || chunk.includes('\\')) return true
  const slash = chunk.indexOf('/')
  if (slash === -1 || chunk.startsWith('HTTP/')) return false
  return slash === 0 || chunk.startsWith('./') || chunk.startsWith('../') || chunk.startsWith('~/')
    ? true
    : chunk.indexOf('/', slash + 1) !== -1
}

/** An e-mail address, an ARN, an IPv6 address. */
function isValue(chunk: string): boolean {
  if (chunk.includes('@') || chunk.startsWith('arn:')) return true
  if (!chunk.includes(':')) return false
  let colons = 0
  for (let at = 0; at < chunk.length; at += 1) {
    const code = chunk.charCodeAt(at)
    if (code === COLON) colons += 1
    else if (!isHexDigit(code) && chunk[at] !== '.' && chunk[at] !== '%') return false
  }
  return colons > 1
}

const isHexDigit = (code: number): boolean =>
  (code >= 48 && code <= 57) || (code >= 65 && code <= 70) || (code >= 97 && code <= 102)

/** The longest word; longer ones are tokens, or encoded data. */
const LONGEST_WORD = 48

function addWords(template: Template, chunk: string): void {
  const protocol = 'HTTP/'
  let at = chunk.startsWith(protocol) ? chunk.length : 0 // its version is no value
  if (at > 0) template.word('HTTP')
  while (at < chunk.length) {
    const from = at
    let [digits, others, isHex] = [0, 0, true]
    const isUnspaced = isUnspacedAt(chunk, at)
    for (; at < chunk.length; at += 1) {
      const code = chunk.charCodeAt(at)
      const kind = kindAt(chunk, at)
      if (isUnspacedAt(chunk, at) !== isUnspaced) break
      if (kind === DIGIT) digits += 1
      else if (kind === LETTER) others += 1
      else if (code !== HYPHEN || at === from) break
      if (!isHexDigit(code) && code !== HYPHEN) isHex = false
    }
    if (at === from) {
      template.mark(chunk[at]!)
      at += 1
      continue
    }
    const word = chunk.slice(from, at)
    if (digits > 0) template.numbered(word, digits === word.length)
    else if ((isHex && others >= 8) || (word.length > LONGEST_WORD && !isUnspaced) || DATE_WORDS.has(word))
      template.value()
    else template.word(word)
  }
}

/** An `_id` of fewer characters may be a word of the message. */
const SHORTEST_ID = 3
const MOST_PARTS = 5

/** The text with a digit, which is a value, for each place where the document's own `_id` stands as a word. */
function withoutOwn(text: string, id: unknown): string {
  if (typeof id === 'string') return withoutText(text, id)
  if (typeof id !== 'object' || id === null) return text
  const prototype: unknown = Object.getPrototypeOf(id)
  if (prototype !== Object.prototype && prototype !== null) return text // one of BSON's types: hex, or a number
  return Object.values(id)
    .slice(0, MOST_PARTS)
    .reduce((rest: string, part) => (typeof part === 'string' ? withoutText(rest, part) : rest), text)
}

function withoutText(text: string, own: string): string {
  if (own.length < SHORTEST_ID) return text
  let [left, from] = ['', 0]
  for (let at = text.indexOf(own); at !== -1; at = text.indexOf(own, at + own.length)) {
    if (isWordAt(text, at - 1) || isWordAt(text, at + own.length)) continue
    left += `${text.slice(from, at)}0`
    from = at + own.length
  }
  return left + text.slice(from)
}
