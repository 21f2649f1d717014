import { describe, expect, test } from '@jest/globals'
import { type StepKind, StepSemaphore } from '../../src/phases/engine/concurrency/step-semaphore.js'

describe('places', () => {
  /** Asks for places in this order; `begun` are those who have one, in the order in which they got it. */
  function asked(semaphore: StepSemaphore, ...kinds: StepKind[]) {
    const begun: string[] = []
    const turns = kinds.map((kind, i) => {
      const turn = semaphore.acquire(kind)
      const begin = () => void begun.push(`${kind} ${i + 1}`)
      return turn ? turn.then(begin) : begin()
    })
    const settled = () => new Promise((resolve) => setImmediate(resolve))
    return { begun, settled, turns }
  }

  test('are given at once while there are any, then in the order in which they were asked for', async () => {
    const semaphore = new StepSemaphore(2, 1)
    const { begun, settled } = asked(semaphore, 'loop', 'loop', 'loop', 'loop', 'loop')
    expect(begun).toEqual(['loop 1', 'loop 2'])
    expect([semaphore.takenCount, semaphore.waitingCount]).toEqual([2, 3])
    semaphore.release('loop')
    semaphore.release('loop')
    await settled()
    expect(begun).toEqual(['loop 1', 'loop 2', 'loop 3', 'loop 4'])
    expect([semaphore.takenCount, semaphore.waitingCount]).toEqual([2, 1])
  })

  test('hang when all are taken and none is given back for five seconds; those for threads by themselves', () => {
    const semaphore = new StepSemaphore(2, 1)
    const hang = (ms: number) => [semaphore.hang('loop', ms), semaphore.hang('thread', ms)]
    asked(semaphore, 'thread', 'loop')
    expect(hang(1_000)).toEqual([false, false])
    expect(hang(5_999)).toEqual([false, false])
    expect(hang(6_000)).toEqual([true, true])
    semaphore.release('loop')
    expect(hang(6_500)).toEqual([false, true])
    asked(semaphore, 'loop')
    expect(hang(11_000)).toEqual([false, true])
    expect(hang(12_000)).toEqual([true, true])
    // One is given back, and taken again at once.
    semaphore.release('thread')
    asked(semaphore, 'thread')
    expect(hang(12_500)).toEqual([false, false])
  })

  test('who waits for a thread holds up nobody else, and comes before those who asked later', async () => {
    const semaphore = new StepSemaphore(3, 1)
    const { begun, settled } = asked(semaphore, 'thread', 'thread', 'loop', 'loop', 'thread', 'loop')
    expect(begun).toEqual(['thread 1', 'loop 3', 'loop 4'])
    expect([semaphore.isWaitedFor('thread'), semaphore.isWaitedFor('loop')]).toEqual([true, true])
    semaphore.release('loop') // for the loop only: the one thread is taken
    await settled()
    expect(begun.slice(3)).toEqual(['loop 6'])
    semaphore.release('thread')
    await settled()
    expect(begun.slice(4)).toEqual(['thread 2'])
    expect([semaphore.takenCount, semaphore.waitingCount]).toEqual([3, 1])
  })

  test('of both kinds, who has waited longest goes first', async () => {
    const semaphore = new StepSemaphore(1, 1)
    const { begun, settled } = asked(semaphore, 'loop', 'thread', 'loop', 'thread')
    for (const kind of ['loop', 'thread', 'loop', 'thread'] as const) {
      semaphore.release(kind)
      await settled()
    }
    expect(begun).toEqual(['loop 1', 'thread 2', 'loop 3', 'thread 4'])
    expect(semaphore.takenCount).toBe(0)
  })

  test('let everybody in at a stop, and are all given back after it', async () => {
    const semaphore = new StepSemaphore(1, 1)
    const { begun, settled } = asked(semaphore, 'loop', 'thread', 'thread', 'loop')
    semaphore.open()
    expect(semaphore.acquire('thread')).toBeUndefined()
    await settled()
    expect(begun).toHaveLength(4)
    expect([semaphore.takenCount, semaphore.waitingCount]).toEqual([5, 0])
    for (const kind of ['loop', 'thread', 'thread', 'thread', 'loop'] as const) semaphore.release(kind)
    expect(semaphore.takenCount).toBe(0)
  })

  test('send away those who have waited too long, of each kind', async () => {
    const semaphore = new StepSemaphore(1, 1)
    expect(semaphore.acquire('loop')).toBeUndefined()
    const turns = [
      semaphore.acquire('loop', 1_000),
      semaphore.acquire('thread', 1_500),
      semaphore.acquire('loop', 2_000),
    ]
    semaphore.expire(1_501)
    expect(await Promise.all(turns.slice(0, 2))).toEqual([false, false])
    expect([semaphore.takenCount, semaphore.waitingCount]).toEqual([1, 1])
    semaphore.release('loop')
    expect(await turns[2]).toBe(true)
  })
})
