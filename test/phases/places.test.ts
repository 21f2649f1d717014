import { describe, expect, test } from '@jest/globals'
import { type PlaceKind, Places } from '../../src/phases/engine/places/places.js'

describe('places', () => {
  /** Asks for places in this order; `begun` are those who have one, in the order in which they got it. */
  function asked(places: Places, ...kinds: PlaceKind[]) {
    const begun: string[] = []
    const turns = kinds.map((kind, i) => {
      const turn = places.take(kind)
      const begin = () => void begun.push(`${kind} ${i + 1}`)
      return turn ? turn.then(begin) : begin()
    })
    const settled = () => new Promise((resolve) => setImmediate(resolve))
    return { begun, settled, turns }
  }

  test('are given at once while there are any, then in the order in which they were asked for', async () => {
    const places = new Places(2, 1)
    const { begun, settled } = asked(places, 'loop', 'loop', 'loop', 'loop', 'loop')
    expect(begun).toEqual(['loop 1', 'loop 2'])
    expect([places.takenCount, places.waitingCount]).toEqual([2, 3])
    places.giveBack('loop')
    places.giveBack('loop')
    await settled()
    expect(begun).toEqual(['loop 1', 'loop 2', 'loop 3', 'loop 4'])
    expect([places.takenCount, places.waitingCount]).toEqual([2, 1])
  })

  test('hang when all are taken and none is given back for five seconds; those for threads by themselves', () => {
    const places = new Places(2, 1)
    const hang = (ms: number) => [places.hang('loop', ms), places.hang('thread', ms)]
    asked(places, 'thread', 'loop')
    expect(hang(1_000)).toEqual([false, false])
    expect(hang(5_999)).toEqual([false, false])
    expect(hang(6_000)).toEqual([true, true])
    places.giveBack('loop')
    expect(hang(6_500)).toEqual([false, true])
    asked(places, 'loop')
    expect(hang(11_000)).toEqual([false, true])
    expect(hang(12_000)).toEqual([true, true])
    // One is given back, and taken again at once.
    places.giveBack('thread')
    asked(places, 'thread')
    expect(hang(12_500)).toEqual([false, false])
  })

  test('who waits for a thread holds up nobody else, and comes before those who asked later', async () => {
    const places = new Places(3, 1)
    const { begun, settled } = asked(places, 'thread', 'thread', 'loop', 'loop', 'thread', 'loop')
    expect(begun).toEqual(['thread 1', 'loop 3', 'loop 4'])
    expect([places.isWaitedFor('thread'), places.isWaitedFor('loop')]).toEqual([true, true])
    places.giveBack('loop') // for the loop only: the one thread is taken
    await settled()
    expect(begun.slice(3)).toEqual(['loop 6'])
    places.giveBack('thread')
    await settled()
    expect(begun.slice(4)).toEqual(['thread 2'])
    expect([places.takenCount, places.waitingCount]).toEqual([3, 1])
  })

  test('of both kinds, who has waited longest goes first', async () => {
    const places = new Places(1, 1)
    const { begun, settled } = asked(places, 'loop', 'thread', 'loop', 'thread')
    for (const kind of ['loop', 'thread', 'loop', 'thread'] as const) {
      places.giveBack(kind)
      await settled()
    }
    expect(begun).toEqual(['loop 1', 'thread 2', 'loop 3', 'thread 4'])
    expect(places.takenCount).toBe(0)
  })

  test('let everybody in at a stop, and are all given back after it', async () => {
    const places = new Places(1, 1)
    const { begun, settled } = asked(places, 'loop', 'thread', 'thread', 'loop')
    places.letAllIn()
    expect(places.take('thread')).toBeUndefined()
    await settled()
    expect(begun).toHaveLength(4)
    expect([places.takenCount, places.waitingCount]).toEqual([5, 0])
    for (const kind of ['loop', 'thread', 'thread', 'thread', 'loop'] as const) places.giveBack(kind)
    expect(places.takenCount).toBe(0)
  })

  test('send away those who have waited too long, of each kind', async () => {
    const places = new Places(1, 1)
    expect(places.take('loop')).toBeUndefined()
    const turns = [places.take('loop', 1_000), places.take('thread', 1_500), places.take('loop', 2_000)]
    places.sendAway(1_501)
    expect(await Promise.all(turns.slice(0, 2))).toEqual([false, false])
    expect([places.takenCount, places.waitingCount]).toEqual([1, 1])
    places.giveBack('loop')
    expect(await turns[2]).toBe(true)
  })
})
