import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { InvalidReplicaOptions, lifecycleOf, Replica, type RunnableLifecycle } from '../../src/index.js'
import { PrefetchTarget } from '../../src/phases/engine/concurrency/prefetch-target.js'
import { SharedSemaphore, StepSemaphore } from '../../src/phases/engine/concurrency/step-semaphore.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate } from '../support/thing.js'

describe('places that lifecycles share', () => {
  /** Lifecycles that want so many places each, of the shared ones. */
  function wanting(shared: SharedSemaphore, ...wanted: number[]) {
    const all = wanted.map(() => new StepSemaphore(32, 0, shared))
    for (const [i, places] of all.entries()) for (let n = 0; n < wanted[i]!; n += 1) void places.acquire('loop')
    return { all, running: () => all.map(({ takenCount }) => takenCount) }
  }

  test('an equal share for each lifecycle that wants more, and what one does not need is for the others', () => {
    const shared = new SharedSemaphore(10)
    const { all, running } = wanting(shared, 32, 2, 32)
    expect(running()).toEqual([10, 0, 0]) // the first had asked before the others
    for (let n = 0; n < 6; n += 1) all[0]!.release('loop')
    expect(running()).toEqual([4, 2, 4])
    expect(shared.free).toBe(0)
    for (const [i, n] of [4, 2, 4].entries()) for (let k = 0; k < n; k += 1) all[i]!.release('loop')
    expect(running()).toEqual([5, 0, 5])
  })

  test('a single place goes round', () => {
    const { all, running } = wanting(new SharedSemaphore(1), 5, 5, 5)
    const served = [0, 0, 0]
    for (let n = 0; n < 9; n += 1) {
      const one = running().indexOf(1)
      served[one]! += 1
      all[one]!.release('loop')
    }
    expect(served).toEqual([3, 3, 3])
  })

  test('one that becomes free while no step waits is offered to all', () => {
    const offered: string[] = []
    const shared = new SharedSemaphore(1)
    const [one] = ['one', 'other'].map((name) => new StepSemaphore(4, 0, shared, () => offered.push(name)))
    one!.acquire('loop')
    one!.release('loop')
    expect(offered.sort()).toEqual(['one', 'other'])
  })

  test('nobody waits once its replica stops', async () => {
    const shared = new SharedSemaphore(1)
    const { all } = wanting(shared, 1, 0)
    const turn = all[1]!.acquire('loop')
    all[1]!.open()
    expect(await turn).toBe(true)
    expect(all[1]!.acquire('loop')).toBeUndefined()
  })

  test('a lifecycle holds as much as its share can begin, and one document where others have all places for long', () => {
    const shared = new SharedSemaphore(8)
    const { all } = wanting(shared, 8, 0)
    const prefetch = new PrefetchTarget(32, () => all[1]!.mayRun(shared))
    expect(prefetch.target).toBe(5) // half of the places, and a quarter more
    prefetch.tooMany()
    expect(prefetch.target).toBe(1)
    for (let n = 0; n < 3; n += 1) all[0]!.release('loop')
    expect(prefetch.target).toBe(3)
  })
})

describe('Replica({ concurrency })', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()

  interface Doc {
    _id: string
  }

  const lifecycleNamed = (name: string, run: (doc: Doc) => Promise<unknown>): RunnableLifecycle =>
    lifecycleOf<Doc>()
      .define({ name, collection: name, phases: { Doing: { next: ['Done'] }, Done: { rest: true } } })
      .handle({
        Doing: async (doc, step) => {
          await run(doc)
          return step.moveTo('Done')
        },
      })
  const insert = (name: string, n: number) =>
    database.db
      .collection<Document & Doc>(name)
      .insertMany(Array.from({ length: n }, (_, i) => ({ _id: `${name}${i}`, phase: 'Doing' })))
  const replicaOf = (concurrency: number | undefined, lifecycles: readonly RunnableLifecycle[]) => {
    const replica = new Replica({ db: database.db, lifecycles, concurrency, doorbell: 'off' })
    replicas.push(replica)
    return replica
  }

  test('no more handlers at once than that, of all lifecycles together, and all documents are done', async () => {
    const seen = { now: 0, most: 0 }
    const run = async () => {
      seen.now += 1
      seen.most = Math.max(seen.most, seen.now)
      await new Promise((go) => setTimeout(go, 2))
      seen.now -= 1
    }
    const names = ['one', 'two', 'three']
    for (const name of names) await insert(name, 30)
    await replicaOf(
      5,
      names.map((name) => lifecycleNamed(name, run)),
    ).runOnce()
    expect(seen).toEqual({ now: 0, most: 5 })
    for (const name of names) expect(await database.db.collection(name).countDocuments({ phase: 'Done' })).toBe(30)
  })

  test('a lifecycle gets the next free place while another has all of them and more waiting', async () => {
    const ends: (() => void)[] = []
    const begun: string[] = []
    const run = (doc: Doc) => {
      begun.push(doc._id)
      const end = gate()
      ends.push(() => end.open())
      return end.wait
    }
    await insert('busy', 30)
    const replica = replicaOf(
      4,
      ['busy', 'rare'].map((name) => lifecycleNamed(name, run)),
    )
    await replica.prepare()
    await replica.tick()
    await eventually(() => begun.length === 4)
    await insert('rare', 1)
    // Its document may be let go while all places are taken for long; each look takes one again.
    await eventually(async () => {
      await replica.tick()
      expect(replica.status().queued).toBeGreaterThanOrEqual(1)
      ends.shift()?.()
      expect(begun).toContain('rare0')
    })
    expect(begun.length).toBeLessThan(20)
    const open = setInterval(() => {
      for (const end of ends.splice(0)) end()
    }, 5)
    await replica.idle()
    clearInterval(open)
  })

  test.each([0, -1, 1.5, 10_001, '5', null])('%p is refused', (concurrency) => {
    expect(() => replicaOf(concurrency as number, [])).toThrow(InvalidReplicaOptions)
    expect(() => replicaOf(concurrency as number, [])).toThrow(/concurrency: expected a whole number from 1 to 10000/)
  })
})
