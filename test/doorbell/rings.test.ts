import { describe, expect, test } from '@jest/globals'
import { EVERYTHING, heardIn, mergeRings, type Ring } from '../../src/doorbell/ring.js'
import { RING_PACE, Turns } from '../../src/doorbell/turns.js'

describe('the limiter', () => {
  /** When each of those who ask at these moments gets its turn. */
  function turnsOf(askedAtMs: readonly number[]): number[] {
    const turns = new Turns(RING_PACE)
    return askedAtMs.map((nowMs) => nowMs + turns.take(nowMs))
  }

  test('one that comes alone waits for nothing, a fifth at the same moment waits 62.5 ms', () => {
    expect(turnsOf([0, 500, 1_000, 1_500])).toEqual([0, 500, 1_000, 1_500])
    expect(turnsOf([0, 0, 0, 0, 0, 0])).toEqual([0, 0, 0, 0, 62.5, 125])
  })

  test('never more than 20 in any second, and no turn is forgotten, however often is asked', () => {
    const asked = [...Array.from({ length: 50 }, () => 0), ...Array.from({ length: 200 }, (_, n) => 7 * n)].sort(
      (a, b) => a - b,
    )
    const turns = turnsOf(asked)
    expect(turns).toHaveLength(asked.length)
    for (const from of turns) {
      expect(turns.filter((at) => at >= from && at < from + 1_000).length).toBeLessThanOrEqual(20)
    }
  })

  test('after a pause they come at once again', () => {
    expect(turnsOf([0, 0, 0, 0, 0, 1_000, 1_000]).slice(5)).toEqual([1_000, 1_000])
  })
})

describe('what is rung', () => {
  test.each<[Ring, Ring, Ring]>([
    [{ lifecycles: ['a'] }, { lifecycles: ['b'] }, { lifecycles: ['a', 'b'] }],
    [
      { lifecycles: ['a'], phases: ['X'] },
      { lifecycles: ['a'], phases: ['Y'] },
      { lifecycles: ['a'], phases: ['X', 'Y'] },
    ],
    [{ lifecycles: ['a'], phases: ['X'] }, { lifecycles: ['a'] }, { lifecycles: ['a'] }],
    [{ lifecycles: ['a'], phases: ['X'] }, EVERYTHING, EVERYTHING],
    [
      { lifecycles: ['a'], phases: ['X'], ids: [1] },
      { lifecycles: ['a'], phases: ['X'], ids: [1, 2] },
      { lifecycles: ['a'], phases: ['X'], ids: [1, 2] },
    ],
    // Of what isn't named nobody would know.
    [
      { lifecycles: ['a'], phases: ['X'], ids: [1] },
      { lifecycles: ['a'], phases: ['X'] },
      { lifecycles: ['a'], phases: ['X'] },
    ],
    [
      { lifecycles: ['a'], phases: ['X'], ids: [1] },
      { lifecycles: ['a'], phases: ['Y'], ids: [2] },
      { lifecycles: ['a'], phases: ['X', 'Y'] },
    ],
    [
      { lifecycles: ['a'], phases: ['X'], ids: [1] },
      { lifecycles: ['b'], phases: ['X'], ids: [2] },
      { lifecycles: ['a', 'b'], phases: ['X'] },
    ],
    [
      { lifecycles: ['a'], phases: ['X'], ids: [1, 2, 3, 4] },
      { lifecycles: ['a'], phases: ['X'], ids: [5, 6, 7, 8, 9] },
      { lifecycles: ['a'], phases: ['X'] },
    ],
  ])('%j and %j together are %j', (one, other, both) => {
    expect(mergeRings(one, other)).toEqual(both)
    const turned = mergeRings(other, one)
    expect(turned.lifecycles).toHaveLength(both.lifecycles.length)
    expect(new Set(turned.phases)).toEqual(new Set(both.phases))
    expect(new Set(turned.ids)).toEqual(new Set(both.ids))
  })

  test('of too many phases none is named: a look is cheaper', () => {
    const phases = Array.from({ length: 21 }, (_, n) => `P${n}`)
    expect(mergeRings({ lifecycles: ['a'], phases }, { lifecycles: ['a'], phases: ['X'] })).toEqual({
      lifecycles: ['a'],
    })
  })

  test('is heard by those whom it concerns, and never by the ringer itself', () => {
    const entries = [
      { lifecycles: ['a'], phases: ['X'], by: 'other' },
      { lifecycles: ['a'], by: 'me' },
      { lifecycles: ['c'], by: 'other' },
    ]
    expect(heardIn(entries, ['a', 'b'], 'me')).toEqual({ lifecycles: ['a'], phases: ['X'] })
    expect(heardIn(entries, ['b'], 'me')).toBeUndefined()
  })

  test("a package's topic is heard where it is listened to, and by no replica", () => {
    const rung = { lifecycles: ['phaselock-state'], phases: ['config'], ids: ['default:limits'] }
    expect(heardIn([rung], ['order', 'api-gateway'], 'me')).toBeUndefined()
    expect(heardIn([rung], ['phaselock-state'], 'me')).toEqual(rung)
  })

  test('may have been written by hand, with nonsense in it', () => {
    expect(heardIn([{ lifecycles: 'a' }], ['a'], 'me')).toEqual({ lifecycles: ['a'] })
    const nonsense = [{}, { lifecycles: 7 }, { lifecycles: [null] }, { lifecycles: ['a'], phases: { n: 1 }, by: 3 }]
    expect(heardIn(nonsense, ['a'], 'me')).toEqual({ lifecycles: ['a'] })
    const named = { lifecycles: ['a'], phases: ['X'] }
    for (const ids of [[], 'x', { $gt: 0 }, [{ $gt: 0 }], [['x']], [null], Array.from({ length: 9 }, (_, n) => n)]) {
      expect(heardIn([{ ...named, ids }], ['a'], 'me')).toEqual(named)
    }
    expect(heardIn([{ ...named, phases: ['X', 'Y'], ids: ['x'] }], ['a'], 'me')).toEqual({
      ...named,
      phases: ['X', 'Y'],
    })
  })
})
