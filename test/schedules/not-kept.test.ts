import { describe, expect, test } from '@jest/globals'
import { useDatabase } from '../support/database.js'
import { dueSchedule, useSchedulers } from './support.js'

const nested = (levels: number): object => (levels === 0 ? {} : { in: nested(levels - 1) })

describe('what a task leaves and its run cannot keep', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()

  /** A run of this task, and what its replica has logged. */
  async function runOf(work: (args: unknown, run: any) => unknown) {
    const one = scheduler(database.db, { tasks: { work: async (args, run) => work(args, run) } })
    await dueSchedule(one, database.db)
    await one.replica.runOnce()
    const [run] = await one.schedules.runs('s')
    return { run: run!, lines: one.logger.lines.map(({ message }) => message) }
  }

  test.each<[string, unknown, string]>([
    ['is too large', { text: 'y'.repeat(70_000) }, 'result: expected JSON of at most 65536 bytes, got 70011 bytes'],
    ['is a function', () => 1, 'result: expected JSON of at most 65536 bytes, got function'],
    [
      'is a bigint',
      { n: 1n },
      'result: expected JSON of at most 65536 bytes, got an object that JSON.stringify refuses',
    ],
    [
      'has a key with a null byte',
      { 'a\0b': 1 },
      'result: expected JSON that MongoDB can store, got an object that it refuses',
    ],
    [
      'is deeper than a document may be',
      nested(300),
      'result: expected JSON that MongoDB can store, got an object that it refuses (deeper than 100 levels',
    ],
  ])('a result that %s is said to be missing, in the run and in the log', async (_what, value, expected) => {
    const { run, lines } = await runOf(() => value)
    expect(run).toMatchObject({ phase: 'Completed' })
    expect(run.result).toBeUndefined()
    expect(run.notKept).toEqual([expect.stringContaining(expected)])
    expect(lines).toContainEqual(expect.stringContaining(`run ${run._id}: not kept: ${expected}`))
  })

  test.each<[string, unknown, unknown, readonly string[]]>([
    ['a Map', new Map([[1, 2]]), {}, ['result: a Map, which JSON has as {}: use Object.fromEntries(map)']],
    [
      'what was not awaited, and a Set',
      { rows: Promise.resolve(1), seen: new Set([1]), n: 5 },
      { rows: {}, seen: {}, n: 5 },
      [
        "result: 'rows' is a Promise, which JSON has as {}: await it",
        "result: 'seen' is a Set, which JSON has as {}: use [...set]",
      ],
    ],
    [
      'no number, and a function',
      { mean: [0 / 0], f: () => 1 },
      { mean: [null] },
      ["result: '0' is NaN, which JSON has as null", "result: 'f' is a function, which JSON leaves out"],
    ],
  ])('of a result with %s the rest is kept, and what is lost is said', async (_what, value, result, notKept) => {
    const { run } = await runOf(() => value)
    expect(run).toMatchObject({ phase: 'Completed', result, notKept })
  })

  test('a line of the log that is too deep is kept without its fields, and fails no run', async () => {
    const { run } = await runOf((_args, one) => one.log('deep', nested(200)))
    expect(run).toMatchObject({ phase: 'Completed', log: [{ message: 'deep', fields: '(not JSON, or too large)' }] })
  })

  test.each<[unknown, unknown, string]>([
    ['a.b', 1, "counter 'a.b': expected a name of letters, digits, _ and -"],
    ['', 1, "counter '': expected a name"],
    [Symbol('s'), 1, 'counter Symbol(s): expected a name'],
    ['files', Number.NaN, "counter 'files': expected a number, got NaN"],
    ['files', '3', "counter 'files': expected a number, got '3'"],
  ])('count(%p, %p) fails no run, and is said not to be counted', async (name, by, expected) => {
    const { run } = await runOf((_args, one) => {
      one.count(name, by)
      one.count(name, by)
      one.count('good')
      return 1
    })
    expect(run).toMatchObject({ phase: 'Completed', counters: { good: 1 }, result: 1 })
    expect(run.notKept).toEqual([expect.stringContaining(expected)])
  })

  test('is bounded itself: the first ten are named', async () => {
    const { run } = await runOf((_args, one) => {
      for (let i = 0; i < 200; i += 1) one.count(`counter_${i}`)
      for (let i = 0; i < 100; i += 1) one.count(`no.${i} ${'x'.repeat(1_000)}`)
    })
    expect(Object.keys(run.counters!)).toHaveLength(100)
    expect(run.notKept).toHaveLength(10)
    expect(run.notKept![0]).toBe("counter 'counter_100': expected at most 100 counters")
    expect(JSON.stringify(run.notKept).length).toBeLessThan(4_000)
  })

  test('a run whose result was kept says nothing', async () => {
    const { run } = await runOf(() => ({ ok: true }))
    expect(run).not.toHaveProperty('notKept')
  })
})
