import { describe, expect, test } from '@jest/globals'
import { numbered, readOptions, shown, t } from '../../src/options/index.js'

const types = t.object({
  name: t.name,
  wait: t.withDefault(t.duration('1s', '1h'), '30s'),
  size: t.optional(t.object({ wide: t.whole(1, 9), high: t.whole(1, 9) })),
  marks: t.withDefault(t.list(t.text, t.expecting('a list of marks')), []),
})

const problems = (given: unknown) => {
  const read = readOptions(types, given)
  return 'problems' in read ? read.problems : []
}

describe('options', () => {
  test('are read with their defaults, and those with units as numbers', () => {
    expect(readOptions(types, { name: 'a', wait: undefined })).toEqual({
      options: { name: 'a', wait: 30_000, marks: [] },
    })
    expect(readOptions(types, { name: 'a', wait: '2m', size: { wide: 1, high: 2 } })).toEqual({
      options: { name: 'a', wait: 120_000, size: { wide: 1, high: 2 }, marks: [] },
    })
  })

  test('of each that is missing its own type says what it expected', () => {
    expect(problems({ size: { wide: 1 } })).toEqual([
      'name: expected a string, got undefined',
      'size.high: expected a whole number from 1 to 9, got undefined',
    ])
  })

  test('every unknown one is named, at any depth, after the problems of the known ones', () => {
    expect(problems({ nam: 'a', other: 1, size: { wide: 0, high: 1, deep: 1, long: 2 } })).toEqual([
      'name: expected a string, got undefined',
      'size.wide: expected a whole number from 1 to 9, got 0',
      "unknown option 'size.deep'",
      "unknown option 'size.long'",
      "unknown option 'nam' (did you mean 'name'?); known: name, wait, size, marks",
      "unknown option 'other'; known: name, wait, size, marks",
    ])
  })

  test.each([
    [undefined, 'undefined'],
    [null, 'null'],
    ['name', "'name'"],
    [[], 'an Array'],
    [new Date(0), '1970-01-01T00:00:00.000Z'],
    [new Map(), 'a Map'],
  ])('are an object, not %p', (given, shown) => {
    expect(problems(given)).toEqual([`expected an object, got ${shown}`])
    if (given !== undefined)
      expect(problems({ name: 'a', size: given })).toEqual([`size: expected an object, got ${shown}`])
  })

  test('an object of any class will do', () => {
    class Settings {
      name = 'a'
    }
    expect(problems(new Settings())).toEqual([])
  })

  test('one more condition is looked at when the rest is right, and says where', () => {
    const square = t.checked(
      t.object({ wide: t.aNumber, high: t.aNumber }),
      ({ wide, high }) => wide === high,
      'expected as much as wide',
      ['high'],
    )
    expect(t.readAs(square, { wide: 1, high: 2 })).toMatchObject({
      problems: [{ path: ['high'], message: 'expected as much as wide' }],
    })
    expect(t.readAs(square, { wide: 1, high: 'x' })).toMatchObject({ problems: [{ path: ['high'] }] })
  })

  test('what is broken counts as absent where that is said, and unknown fields are left alone', () => {
    const sound = t.partOf({ names: t.orAbsent(t.list(t.text, 'a list')), count: t.orAbsent(t.aNumber) })
    expect(t.readAs(sound, { names: ['a', 1], count: 2, more: true })).toEqual({
      value: { names: undefined, count: 2 },
    })
  })
})

test('what is expected of a duration is illustrated by some that would be taken', () => {
  const expected = (type: t.Type<unknown>, given: unknown) => {
    const read = readOptions(t.object({ every: type }), { every: given })
    return 'problems' in read ? read.problems[0] : undefined
  }
  expect(expected(t.duration('1s', '1h'), '500ms')).toBe(
    "every: expected a duration from 1s to 1h, such as '30s' or '5m', got '500ms'",
  )
  expect(expected(t.duration('0ms', '1m'), 5)).toMatch(/such as '500ms' or '30s', got 5; add the unit/)
  expect(expected(t.duration('1h', '3650d'), '1m')).toMatch(/such as '2h', '1d' or '30d', got '1m'/)
  expect(expected(t.duration('1s', '24h'), '0s')).toMatch(/such as '30s', '5m' or '2h', got '0s'/)
})

test.each([
  [new Date(5), '1970-01-01T00:00:00.005Z'],
  [new Date(Number.NaN), 'an invalid date'],
  ['x', "'x'"],
  [{ a: 1 }, 'an object with a'],
])('%p is shown as it is', (value, text) => expect(shown(value)).toBe(text))

test.each([
  [0, '0 slots'],
  [1, '1 slot'],
  [2, '2 slots'],
])('%d has its number', (count, text) => expect(numbered(count, 'slot')).toBe(text))
