import { describe, expect, test } from '@jest/globals'
import { MongoServerError, ObjectId } from 'mongodb'
import { RefusingDocuments, type WritesOf, writeAround } from '../../src/lock/index.js'
import { ManualClock } from './fixture.js'

describe('documents that refuse writes', () => {
  test('are left alone for 5 s, 10 s, 20 s, at most 10 min', () => {
    const clock = new ManualClock()
    const skips = new RefusingDocuments(clock)
    const id = new ObjectId()
    for (const pauseMs of [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000]) {
      skips.add(id)
      clock.advance(pauseMs - 1)
      expect(skips.ids()).toEqual([id])
      clock.advance(1)
      expect(skips.ids()).toEqual([])
      // Tried alone from now on.
      expect(skips.isSuspect(new ObjectId(id.toHexString()))).toBe(true)
    }
    skips.remove(id)
    expect([skips.isSuspect(id), skips.size]).toEqual([false, 0])
  })

  test('are any number up to 100,000; commands name the first thousand, and no long ids', () => {
    const clock = new ManualClock()
    const skips = new RefusingDocuments(clock)
    skips.add('x'.repeat(200_000))
    for (let n = 0; n < 100_100; n += 1) skips.add(n)
    expect([skips.size, skips.ids().length, skips.unnamed]).toEqual([100_000, 1_000, 99_000])
    expect(skips.isPaused(70_000)).toBe(true)
    expect(skips.isPaused('x'.repeat(200_000))).toBe(true)
    expect(skips.isPaused(100_050)).toBe(false)
    // What has not been met again for long makes room.
    clock.advance(5_000 + 600_000)
    skips.add(100_050)
    expect([skips.size, skips.isPaused(100_050)]).toEqual([100_000, true])
  })
})

describe('writing around a culprit', () => {
  /** Writes in order and stops at a culprit, as the server does. */
  function server(culprits: number[], inOrder = true) {
    const written = new Set<number>()
    let commands = 0
    const refusal = new MongoServerError({ message: 'refused', code: 121 })
    const writes: WritesOf = {
      together: async (ids) => {
        commands += 1
        for (const id of ids as number[]) {
          if (written.has(id)) continue
          if (culprits.includes(id)) throw refusal
          written.add(id)
        }
      },
      apart: async (ids) => {
        commands += 1
        for (const id of ids as number[]) if (!culprits.includes(id)) written.add(id)
        return (ids as number[]).filter((id) => culprits.includes(id)).map((id) => ({ id, error: refusal }))
      },
      leftOf: async (ids) => {
        const left = (ids as number[]).filter((id) => !written.has(id))
        return inOrder ? left : left.reverse()
      },
    }
    return { written, writes, commands: () => commands }
  }
  const ids = Array.from({ length: 100 }, (_, n) => n)

  test.each([
    ['the first', [0]],
    ['the last', [99]],
    ['three', [0, 50, 51]],
    ['seven', [1, 2, 3, 50, 97, 98, 99]],
    ['all', ids],
  ])('%s: all others are written, for six commands', async (_name, culprits) => {
    const { writes, written, commands } = server(culprits)
    const { refused, untried } = await writeAround(ids, writes)
    expect(refused.map(({ id }) => id)).toEqual(culprits)
    expect(untried).toEqual([])
    expect(written.size).toBe(100 - culprits.length)
    expect(commands()).toBeLessThanOrEqual(6)
  })

  test('also where the server goes in another order', async () => {
    const { writes, written } = server([20, 70], false)
    const { refused } = await writeAround(ids, writes)
    expect(refused.map(({ id }) => id).sort()).toEqual([20, 70])
    expect(written.size).toBe(98)
  })

  test('where thousands refuse: five hundred, the rest is left for the next time', async () => {
    const many = Array.from({ length: 2_000 }, (_, n) => n)
    const { writes } = server(many)
    const { refused, untried } = await writeAround(many, writes)
    expect(refused.length + untried.length).toBe(2_000)
    expect(refused.length).toBeGreaterThanOrEqual(500)
    expect(refused.length).toBeLessThan(610)
  })

  test("an error that is nobody's fault is thrown", async () => {
    const { writes } = server([])
    const together = async () => {
      throw new MongoServerError({ message: 'not primary', code: 10107 })
    }
    await expect(writeAround(ids, { ...writes, together })).rejects.toThrow('not primary')
  })
})
