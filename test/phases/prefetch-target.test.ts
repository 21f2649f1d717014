import { describe, expect, test } from '@jest/globals'
import { MAX_BATCH, PrefetchTarget } from '../../src/phases/engine/concurrency/prefetch-target.js'

/** As after many steps of that duration. */
function prefetchFor(handlerMs: number, besideMs = 10, claims = 0): PrefetchTarget {
  const prefetch = new PrefetchTarget(32)
  for (let i = 0; i < 200; i += 1) {
    prefetch.ran(handlerMs)
    prefetch.recorded(besideMs)
  }
  for (let i = 0; i < claims; i += 1) prefetch.adapt()
  return prefetch
}

describe('how much a replica holds', () => {
  test('a few at first; then what its handlers begin within a quarter of a second', () => {
    expect(new PrefetchTarget(32).target).toBe(40)
    expect([0.1, 1, 100, 10_000].map((ms) => prefetchFor(ms).target)).toEqual([2_000, 2_000, 112, 35])
  })

  test('less where the line and the recording take long, down to a little more than its concurrency; more again when they do not', () => {
    expect(prefetchFor(0.1, 1_000, 1).target).toBe(1_000)
    const prefetch = prefetchFor(0.1, 1_000, 20)
    expect(prefetch.target).toBe(40)
    for (let i = 0; i < 200; i += 1) prefetch.recorded(10)
    for (let i = 0; i < 20; i += 1) prefetch.adapt()
    expect(prefetch.target).toBe(2_000)
  })

  test('a claim takes a quarter of the places at least, unless handlers would stand idle; never more than a batch', () => {
    const prefetch = prefetchFor(0.1)
    expect(prefetch.toClaim(0)).toBe(MAX_BATCH)
    expect(prefetch.toClaim(1_400)).toBe(600)
    expect(prefetch.toClaim(1_600)).toBe(0)
    expect(prefetch.toClaim(2_000)).toBe(0)
    const slow = prefetchFor(10_000)
    expect(slow.toClaim(35)).toBe(0)
    expect(slow.toClaim(31)).toBe(4)
  })

  test('none ahead once it had to let some go, until a handler has ended', () => {
    const prefetch = prefetchFor(0.1)
    prefetch.tooMany()
    expect([prefetch.target, prefetch.toClaim(31), prefetch.toClaim(32)]).toEqual([32, 1, 0])
    prefetch.ran(0.1)
    expect(prefetch.target).toBe(2_000)
  })
})
