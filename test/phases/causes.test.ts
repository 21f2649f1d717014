import { readFileSync } from 'node:fs'
import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { templateOf } from '../../src/phases/errors/message-template.js'
import { causeOfError, recordedError } from '../../src/phases/index.js'
import { randomNumbers } from '../support/random.js'

type KnownCause = readonly [name: string, code: string | undefined, ...messages: string[]]

/** The groups of `known-messages.txt`: each is one cause, and no two are the same. */
const KNOWN_CAUSES: readonly KnownCause[] = readFileSync('test/phases/fixtures/known-messages.txt', 'utf8')
  .split('\n\n')
  .slice(1)
  .map((group) => {
    const [title = '', ...messages] = group.trimEnd().split('\n')
    const [name = '', code] = title.split(' ')
    return [name, code, ...messages.map((line) => line.slice(2))]
  })

const causeOf = (message: string, id?: unknown) => causeOfError({ name: 'Error', message }, id).cause

describe('causes of errors', () => {
  afterEach(() => void jest.restoreAllMocks())

  test.each(KNOWN_CAUSES.map((one) => [`${one[0]} ${one[1] ?? ''}: ${one[2]}`.slice(0, 100), one] as const))(
    'one cause: %s',
    (_title, [name, code, ...messages]) => {
      const causes = messages.map((message) => causeOfError({ name, message, ...(code !== undefined && { code }) }))
      expect(causes).toEqual(messages.map(() => causes[0]))
    },
  )

  test('scripts without spaces: numbers are values, the words around them stay, however long they are', () => {
    expect(templateOf('打印机17没有纸')).toBe('打印机#没有纸')
    expect(templateOf('プリンター１２は応答しません。再試行３回')).toBe('プリンター#は応答しません。再試行#回')
    expect(templateOf('ไม่พบเอกสาร42ในคิว')).toBe('ไม่พบเอกสาร#ในคิว')
    expect(templateOf('打印机　没有纸')).toBe('打印机 没有纸')
    expect(templateOf("找不到文件'a-b'的内容")).toBe('找不到文件#的内容')
    expect(templateOf('文件order-abc损坏', 'order-abc')).toBe('文件#损坏')
    const long =
      '由于上游服务长时间没有响应并且所有重试均已用尽因此无法完成当前订单的打印任务请联系系统管理员检查打印机的网络连接'
    expect(templateOf(long)).toBe(long)
    expect(causeOf(`${long}7`)).not.toBe(causeOf('打印机没有纸7'))
  })

  test('200 known messages: no two of the lists have one cause', () => {
    const titles = new Map<string, string[]>()
    for (const [name, code, message] of KNOWN_CAUSES) {
      const { cause, text } = causeOfError({ name, message: message!, ...(code !== undefined && { code }) })
      titles.set(cause, [...(titles.get(cause) ?? []), `${name} ${code}: ${text}`])
    }
    expect([...titles.values()].filter((same) => same.length > 1)).toEqual([])
    expect(KNOWN_CAUSES.reduce((sum, [, , ...messages]) => sum + messages.length, 0)).toBeGreaterThanOrEqual(200)
  })

  test.each<[string, string]>([
    ['pods "web-7f9c" not found', 'pods # not found'],
    ['Request failed with status code 404', 'Request failed with status code 404'],
    ["can't open 'it's here' for 3 users' sakes", "can't open # for # users' sakes"],
    ['waited 5 seconds, tried 3 times', 'waited #, tried # time'],
    ['at 2026-11-26T18:15:14.123Z (Thu, 26 Nov 2026 18:15:14 GMT)', 'at # GMT'],
    ['{"reason":"NotFound","name":"x"}', '{reason:NotFound,name:#'],
    ['', ''],
    ['   ', ''],
    ['naïve Straße größer als 5', 'naïve Straße größer als #'],
  ])('%s', (message, template) => expect(templateOf(message)).toBe(template))

  test("the document's own _id is a value, as a word only", () => {
    expect(templateOf('alice has no invoice', 'alice')).toBe('# has no invoice')
    expect(templateOf('malice has no invoice', 'alice')).toBe('malice has no invoice')
    expect(templateOf('acme/north wing is closed', 'acme/north wing')).toBe('# is closed')
    expect(templateOf('alice of acme is gone', { user: 'alice', tenant: 'acme' })).toBe('# of # is gone')
    expect(templateOf('a is gone', 'a')).toBe('a is gone')
    for (const odd of [null, undefined, 5, new Date(), Object.create(null), [], Symbol('x')])
      expect(templateOf('x is gone', odd)).toBe('x is gone')
  })

  test('the first frame of the user counts, without its line, its folder and the digest of its bundle', () => {
    const error = (stack: string) => causeOfError({ name: 'Error', message: 'no', stack }).cause
    const first = error('Error: no\n    at Packing (file:///app/dist/order.js:12:3)\n    at x (file:///app/y.js:1:1)')
    expect(error('Error: no\n    at async Packing (/srv/other/dist/order.js:99:30)')).toBe(first)
    const packages =
      '    at a (/app/node_modules/mongodb/lib/b.js:1:1)\n    at node:internal/process/task_queues:95:5\n'
    expect(error(`Error: no\n${packages}    at Packing (C:\\app\\dist\\order.js:1:1)`)).toBe(first)
    expect(error('Error: no\n    at Shipping (file:///app/dist/order.js:12:3)')).not.toBe(first)
    expect(error('Error: no\n    at Packing (file:///app/dist/invoice.js:12:3)')).not.toBe(first)
    const bundled = error('Error: no\n    at Packing (/app/main-3fa2b1c4.js:1:1)')
    expect(error('Error: no\n    at Packing (/app/main-99ab01cd.js:1:1)')).toBe(bundled)
  })

  test("the codes of its causes count, each once and in any order; a cause without a code by its message's words", () => {
    const cause = (...causes: object[]) =>
      causeOfError({ name: 'Error', message: 'fetch failed', causes } as never).cause
    const refused = { name: 'Error', message: 'connect ECONNREFUSED 10.0.0.1:80', code: 'ECONNREFUSED' }
    const reset = { name: 'Error', message: 'read ECONNRESET', code: 'ECONNRESET' }
    expect(cause(refused, refused, reset)).toBe(cause(reset, { ...refused, message: 'connect ECONNREFUSED ::1:80' }))
    expect(cause(refused)).not.toBe(cause(reset))
    expect(cause({ name: 'Error', message: 'quota 5 is full' })).toBe(
      cause({ name: 'Error', message: 'quota 9 is full' }),
    )
    expect(cause({ name: 'Error', message: 'quota is full' })).not.toBe(cause({ name: 'Error', message: 'no image' }))
  })

  const WORDS =
    'cannot find open read the order of tenant in queue because service refused after waiting for lock'.split(' ')

  /** Values as the issue names them. */
  function someValue(random: () => number): string {
    const whole = (most: number) => Math.floor(random() * most)
    const hex = (length: number) => Array.from({ length }, () => whole(16).toString(16)).join('')
    const letters = (length: number) => Array.from({ length }, () => String.fromCharCode(97 + whole(26))).join('')
    const kinds = [
      () => String(whole(1e9)),
      () => String(random() * 1e6),
      () => `-${whole(100)}`,
      () => `0x${hex(8)}`,
      () => `${hex(8)}-${hex(4)}-4${hex(3)}-a${hex(3)}-${hex(12)}`,
      () => `${hex(23)}7`,
      () => `"${letters(whole(20))} ${letters(3)}"`,
      () => `'${letters(1 + whole(20))}'`,
      () => `\`${letters(5)}\``,
      () => `https://${letters(8)}.example.com:${whole(9999)}/${letters(4)}?a=${hex(4)}&b=${letters(3)}`,
      () => `mongodb://${letters(4)}:${letters(4)}@${letters(6)}/${letters(3)}`,
      () => `/${letters(4)}/${letters(6)}.${letters(3)}`,
      () => `C:\\${letters(4)}\\${letters(4)}`,
      () => `${whole(256)}.${whole(256)}.${whole(256)}.${whole(256)}:${whole(65_536)}`,
      () => `fe80::${hex(4)}:${hex(4)}`,
      () => new Date(whole(2e12)).toISOString(),
      () => `${letters(5)}@${letters(5)}.example`,
      () => `${letters(3)}-${whole(99)}-${letters(4)}`,
    ]
    return kinds[whole(kinds.length)]!()
  }

  test.each([1, 2, 3, 4, 5])('random values in random templates are one cause (seed %i)', (seed) => {
    const random = randomNumbers(seed)
    const whole = (most: number) => Math.floor(random() * most)
    for (let round = 0; round < 200; round += 1) {
      const parts = Array.from({ length: 2 + whole(8) }, () => WORDS[whole(WORDS.length)]!)
      const slots = new Set([...parts.keys()].filter(() => random() < 0.5))
      const filled = () => parts.map((word, i) => (slots.has(i) ? `${word} ${someValue(random)}` : word)).join(' ')
      const [one, other] = [filled(), filled()]
      expect([one, causeOf(one)]).toEqual([one, causeOf(other)])
      const id = `doc ${whole(1e6)}`
      expect(causeOf(`${one} ${id} end`, id)).toBe(causeOf(`${other} ${id} end`, id))
    }
  })

  test.each([1, 2, 3])('never throws, whatever the text, and the text is bounded (seed %i)', (seed) => {
    const random = randomNumbers(seed)
    const pieces = [
      '"',
      "'",
      '`',
      '\\',
      ' ',
      ':',
      '://',
      '/',
      '.',
      '{',
      '}',
      '(',
      'a',
      'b1',
      '7',
      '-',
      '@',
      '\n',
      'é',
      '\ud800',
      '\0',
      '…',
    ]
    for (let round = 0; round < 300; round += 1) {
      const length = Math.floor(random() * 300)
      const text = Array.from({ length }, () => pieces[Math.floor(random() * pieces.length)]!).join('')
      const found = causeOfError(
        { name: text, message: text, code: text, stack: text, causes: [{ name: text, message: text }] },
        text,
      )
      expect(found.cause).toMatch(/^[0-9a-f]{12}$/)
      expect(found.text.length).toBeLessThanOrEqual(200)
      expect(
        causeOfError(
          { name: text, message: text, code: text, stack: text, causes: [{ name: text, message: text }] },
          text,
        ),
      ).toEqual(found)
    }
  })

  /** The characters that are looked at. */
  function workOf(run: () => unknown): number {
    let work = 0
    const { charCodeAt, indexOf } = String.prototype
    jest.spyOn(String.prototype, 'charCodeAt').mockImplementation(function (this: string, at) {
      work += 1
      return charCodeAt.call(this, at)
    })
    jest.spyOn(String.prototype, 'indexOf').mockImplementation(function (this: string, text, from = 0) {
      const found = indexOf.call(this, text, from)
      work += (found === -1 ? this.length : found) - from
      return found
    })
    run()
    jest.restoreAllMocks()
    return work
  }

  test.each([
    "'a",
    " 'a",
    '"',
    '\\"',
    "'\\' ",
    'a',
    '1',
    '::',
    '/a ',
    'a:b.c-',
    '://',
    '{"',
    '\n    at x',
    '\n',
    'abc ',
  ])('work is linear in the beginning of a message of %j, and none is done for the rest', (piece) => {
    const text = (length: number) => piece.repeat(Math.ceil(length / piece.length)).slice(0, length)
    const work = (length: number) =>
      workOf(() => causeOfError({ name: 'Error', message: text(length), stack: text(Math.min(length, 4_000)) }, 'abc'))
    expect(work(1_000)).toBeLessThan(20 * 1_000)
    expect(work(2_000)).toBeLessThan(20 * 2_000)
    expect(work(1_000_000)).toBeLessThan(20 * 4_000)
  })

  test('an error of 1 MB is recorded by its beginning', () => {
    const error = new Error(`no "${'x'.repeat(1_000_000)}" here`)
    error.stack = `Error: ${error.message}\n    at f (/a/b.js:1:1)`.repeat(3)
    const recorded = recordedError(error)
    expect(recorded.stack!.length).toBeLessThanOrEqual(4_000)
    expect(causeOfError(recorded)).toMatchObject({ text: 'no #' })
  })
})
