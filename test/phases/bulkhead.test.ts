import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals'
import { Bulkhead } from '../../src/phases/engine/callbacks/bulkhead.js'

describe('a bulkhead between calls that return soon and calls that hang', () => {
  beforeEach(() => void jest.useFakeTimers())
  afterEach(() => void jest.useRealTimers())

  /** Calls that ask for a place, each by its number. */
  function callsIn(bulkhead: Bulkhead) {
    const begun: number[] = []
    const aside: number[] = []
    const sentAway: number[] = []
    const leave = new Map<number, () => void>()
    let count = 0
    const ask = (more: number) => {
      for (let i = 0; i < more; i += 1) {
        const number = ++count
        void bulkhead
          .enter(() => void aside.push(number))
          .then((end) => {
            if (!end) return void sentAway.push(number)
            begun.push(number)
            leave.set(number, end)
          })
      }
    }
    return { ask, begun, aside, sentAway, end: (number: number) => leave.get(number)!() }
  }
  const pass = (ms: number) => jest.advanceTimersByTimeAsync(ms)

  test('begins as many as there are places, and the next one when one ends, in the order of the requests', async () => {
    const { ask, begun, aside, end } = callsIn(new Bulkhead(2))
    ask(4)
    await pass(0)
    expect(begun).toEqual([1, 2])
    end(2)
    await pass(0)
    expect(begun).toEqual([1, 2, 3])
    end(1)
    await pass(0)
    expect([begun, aside]).toEqual([[1, 2, 3, 4], []])
  })

  test('lets a call that lasts go aside after 250 ms, and the next one begins', async () => {
    const { ask, begun, aside } = callsIn(new Bulkhead(2))
    ask(3)
    await pass(249)
    expect([begun, aside]).toEqual([[1, 2], []])
    await pass(1)
    expect([begun, aside]).toEqual([
      [1, 2, 3],
      [1, 2],
    ])
  })

  test.each([
    [8, 64],
    [32, 64],
    [32, 1_000],
    [100, 1_000],
  ])('with %i places, %i that hang pass within a second', async (concurrency, hanging) => {
    const { ask, begun } = callsIn(new Bulkhead(concurrency))
    ask(hanging + 1)
    await pass(1_000)
    expect(begun).toHaveLength(hanging + 1)
  })

  test('lets no more than 1,500 go aside, sends away calls that wait 1.5 s, and goes on when one ends', async () => {
    const bulkhead = new Bulkhead(32)
    const { ask, begun, aside, sentAway, end } = callsIn(bulkhead)
    ask(1_540)
    await pass(10_000)
    expect([begun.length, aside.length, sentAway.length]).toEqual([1_532, 1_500, 8])
    expect(bulkhead.prefetch.toClaim(32)).toBe(0)
    end(1)
    ask(1)
    await pass(500)
    expect([begun.length, aside.length, sentAway.length]).toEqual([1_533, 1_501, 8])
  })

  test('holds more ahead where calls are quick, up to 250, and none where places hang', async () => {
    const bulkhead = new Bulkhead(32)
    const { ask, end } = callsIn(bulkhead)
    expect(bulkhead.prefetch.toClaim(0)).toBe(40)
    ask(100)
    for (let number = 1; number <= 100; number += 1) {
      await pass(1)
      end(number)
    }
    expect(bulkhead.prefetch.toClaim(0)).toBe(250)
    bulkhead.prefetch.tooMany()
    expect(bulkhead.prefetch.toClaim(32)).toBe(0)
  })

  test('gives every call a place once it is open, because none is called any more', async () => {
    const bulkhead = new Bulkhead(1)
    const { ask, begun } = callsIn(bulkhead)
    ask(5)
    bulkhead.open()
    await pass(0)
    expect(begun).toHaveLength(5)
  })
})
