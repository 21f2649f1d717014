import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { shown, textOf } from '../../src/phases/errors/kept-text.js'

const MB_20 = 20_000_000

function nested(levels: number): unknown {
  let cause: unknown = 'innermost'
  for (let i = 0; i < levels; i += 1) cause = { cause }
  return cause
}

/** All that a handler gives passes here on the replica's event loop. */
describe('the text of anything', () => {
  afterEach(() => void jest.restoreAllMocks())

  test.each<[string, () => unknown, string]>([
    ['a text', () => 'x'.repeat(MB_20), `"${'x'.repeat(199)}`],
    ['a text in an object', () => ({ name: 'x'.repeat(MB_20) }), `{"name":"${'x'.repeat(191)}`],
    ['a name of a field', () => ({ ['x'.repeat(MB_20)]: 1 }), `{"${'x'.repeat(198)}`],
    ['a list', () => Array.from({ length: 2_000_000 }, () => 1), `[${'1,'.repeat(100)}`.slice(0, 200)],
    ['a list with a hole of four thousand millions', () => Object.assign([], { length: 4e9 }), `[null,`],
    ['bytes', () => Buffer.alloc(MB_20), '"[object Uint8Array]"'],
    ['bytes in an object', () => ({ bytes: Buffer.alloc(MB_20) }), '{"bytes":"[object Uint8Array]"}'],
    ['a bigint', () => 2n ** 1_000_000n, 'a bigint of more than 64 bits'],
    ['20,000 nested causes', () => nested(20_000), '[object Object]'],
    ['lists of lists of lists', () => listsOf(50, 90), '[[[[['],
  ])('%s: cut before anything is made of all of it', (_name, make, beginning) => {
    const value = make()
    const stringify = jest.spyOn(JSON, 'stringify')
    const text = shown(value)
    expect(text.length).toBeLessThanOrEqual(200)
    expect(text.startsWith(beginning)).toBe(true)
    for (const { value: made } of stringify.mock.results) expect(String(made).length).toBeLessThan(30_000)
  })

  test.each<[string, unknown, string]>([
    [
      'an object',
      { a: ['x', { b: null, c: undefined }], d: new Date(0) },
      '{"a":["x",{"b":null}],"d":"1970-01-01T00:00:00.000Z"}',
    ],
    ['3 levels', nested(3), '{"cause":{"cause":{"cause":"innermost"}}}'],
    ['a field __proto__', JSON.parse('{"__proto__":{"a":1}}'), '{"__proto__":{"a":1}}'],
    ['an error', new TypeError('x'), 'TypeError: x'],
    ['an error in an object', { error: new Error('x') }, '{"error":"Error: x"}'],
    ['a bigint', 5n, '5'],
    ['a list of bigints', [5n], '[object Array]'],
    ['a symbol', Symbol('s'), 'Symbol(s)'],
    ['null', null, 'null'],
  ])('%s: as its JSON, or its type', (_name, value, text) => expect(textOf(value)).toBe(text))
})

/** The same list again and again, so that all of it would be 50 ^ 90 ones. */
function listsOf(length: number, levels: number): unknown {
  let list: unknown = 1
  for (let i = 0; i < levels; i += 1) {
    const item = list
    list = Array.from({ length }, () => item)
  }
  return list
}
