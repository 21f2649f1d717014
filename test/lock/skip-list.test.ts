import { describe, expect, test } from '@jest/globals'
import { MongoServerError, ObjectId } from 'mongodb'
import { SkipList, writeAround } from '../../src/lock/index.js'
import { ManualClock } from './fixture.js'

describe('documents that refuse writes', () => {
  test('are left alone for 5 s, 10 s, 20 s, at most 10 min', () => {
    const clock = new ManualClock()
    const skips = new SkipList(clock)
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

  test('are a thousand at most', () => {
    const skips = new SkipList(new ManualClock())
    for (let n = 0; n < 1_200; n += 1) skips.add(n)
    expect(skips.size).toBe(1_000)
    skips.add(3)
    expect(skips.size).toBe(1_000)
  })
})

describe('writing around a culprit', () => {
  /** Writes in order and stops at a culprit, as the server does. */
  function server(culprits: number[], inOrder = true) {
    const written = new Set<number>()
    let commands = 0
    const write = async (ids: readonly unknown[]) => {
      commands += 1
      for (const id of ids as number[]) {
        if (written.has(id)) continue
        if (culprits.includes(id)) throw new MongoServerError({ message: 'refused', code: 121 })
        written.add(id)
      }
    }
    const leftOf = async (ids: readonly unknown[]) => {
      const left = (ids as number[]).filter((id) => !written.has(id))
      return inOrder ? left : left.reverse()
    }
    return { written, write, leftOf, commands: () => commands }
  }
  const ids = Array.from({ length: 100 }, (_, n) => n)

  test.each([
    ['the first', [0]],
    ['the last', [99]],
    ['three', [0, 50, 51]],
    ['seven', [1, 2, 3, 50, 97, 98, 99]],
  ])('%s: all others are written, for three commands a culprit', async (_name, culprits) => {
    const { write, leftOf, written, commands } = server(culprits)
    const { refused, untried } = await writeAround(ids, write, leftOf)
    expect(refused.map(({ id }) => id)).toEqual(culprits)
    expect(untried).toEqual([])
    expect(written.size).toBe(100 - culprits.length)
    expect(commands()).toBeLessThanOrEqual(1 + 2 * culprits.length)
  })

  test('found by halving where the server goes in another order', async () => {
    const { write, leftOf, written, commands } = server([20, 70], false)
    const { refused } = await writeAround(ids, write, leftOf)
    expect(refused.map(({ id }) => id).sort()).toEqual([20, 70])
    expect(written.size).toBe(98)
    expect(commands()).toBeLessThan(60)
  })

  test('where all refuse: eight, the rest is left for the next time', async () => {
    const { write, leftOf, commands } = server(ids)
    const { refused, untried } = await writeAround(ids, write, leftOf)
    expect(refused).toHaveLength(8)
    expect(untried).toHaveLength(92)
    expect(commands()).toBeLessThanOrEqual(17)
  })

  test("an error that is nobody's fault is thrown", async () => {
    const failing = writeAround(
      ids,
      async () => {
        throw new MongoServerError({ message: 'not primary', code: 10107 })
      },
      async () => [],
    )
    await expect(failing).rejects.toThrow('not primary')
  })
})
