import { describe, expect, test } from '@jest/globals'
import { readOptions, t } from '../../src/options/index.js'

const types = t.object({
  name: t.aName,
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
    [new Date(0), 'a Date'],
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
