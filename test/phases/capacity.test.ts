import { describe, expect, test } from '@jest/globals'
import { Capacity, MAX_BATCH } from '../../src/phases/engine/places/capacity.js'

/** As after many steps of that duration. */
function capacityFor(handlerMs: number, besideMs = 10, claims = 0): Capacity {
  const capacity = new Capacity(32)
  for (let i = 0; i < 200; i += 1) {
    capacity.ran(handlerMs)
    capacity.recorded(besideMs)
  }
  for (let i = 0; i < claims; i += 1) capacity.adapt()
  return capacity
}

describe('how much a replica holds', () => {
  test('a few at first; then what its handlers begin within a quarter of a second', () => {
    expect(new Capacity(32).places).toBe(40)
    expect([0.1, 1, 100, 10_000].map((ms) => capacityFor(ms).places)).toEqual([2_000, 2_000, 112, 35])
  })

  test('less where the line and the recording take long, down to a little more than its concurrency; more again when they do not', () => {
    expect(capacityFor(0.1, 1_000, 1).places).toBe(1_000)
    const capacity = capacityFor(0.1, 1_000, 20)
    expect(capacity.places).toBe(40)
    for (let i = 0; i < 200; i += 1) capacity.recorded(10)
    for (let i = 0; i < 20; i += 1) capacity.adapt()
    expect(capacity.places).toBe(2_000)
  })

  test('a claim takes a quarter of the places at least, unless handlers would stand idle; never more than a batch', () => {
    const capacity = capacityFor(0.1)
    expect(capacity.room(0)).toBe(MAX_BATCH)
    expect(capacity.room(1_400)).toBe(600)
    expect(capacity.room(1_600)).toBe(0)
    expect(capacity.room(2_000)).toBe(0)
    const slow = capacityFor(10_000)
    expect(slow.room(35)).toBe(0)
    expect(slow.room(31)).toBe(4)
  })

  test('none ahead once it had to let some go, until a handler has ended', () => {
    const capacity = capacityFor(0.1)
    capacity.tooMany()
    expect([capacity.places, capacity.room(31), capacity.room(32)]).toEqual([32, 1, 0])
    capacity.ran(0.1)
    expect(capacity.places).toBe(2_000)
  })
})
