import { describe, expect, jest, test } from '@jest/globals'
import { sleep } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import { recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'
import { LegacyWriter } from './legacy-writer.js'

jest.setTimeout(240_000)

describe('hole 11: writers of the old kind, which lease without lockedBy', () => {
  const database = useDatabase()

  test('beside three replicas, 300 documents: none is taken from under it, none of its outcomes overwritten', async () => {
    const { db } = database
    const lockTimeoutMs = 15_000
    const lifecycle = thingOf({ legacyWriters: true, lockTimeout: `${lockTimeoutMs}ms`, concurrency: 6 })
    /** Leases of the old writer, by document; while one is running nobody of ours may begin a step or move the document. */
    const leased = new Map<string, number>()
    let fromUnder = 0
    let ours = 0
    const handler = thingWith(async (doc, step) => {
      const check = () => {
        if (step.leaseLeftMs() > 0 && (leased.get(doc._id) ?? 0) > Date.now()) fromUnder += 1
      }
      check()
      await sleep(40)
      check()
      ours += 1
      return step.wait('others', { for: '300ms' })
    }, lifecycle)
    const observer = recordingObserver()
    const replicas = ['r1', 'r2', 'r3'].map((name) => replicaOf(db, handler, { name, observer }))
    await things(db).insertMany(
      Array.from({ length: 300 }, (_, i) => ({ _id: `a${i}`, phase: 'Creating', lockedAt: new Date(0) })),
    )
    await Promise.all(replicas.map((replica) => replica.start()))
    const outcomes = new Map<string, string>()
    let overwritten = 0
    /** 300 outcomes in all, by four services; some clocks are ahead or behind by a bit. */
    const service = async (clockAheadMs: number) => {
      const legacy = new LegacyWriter(things(db), lockTimeoutMs, clockAheadMs)
      while (outcomes.size < 300) {
        // Whoever is quicker: both sides get their part.
        const lease = ours > outcomes.size ? await legacy.findAndLock('Creating') : undefined
        if (!lease) {
          await sleep(20)
          continue
        }
        leased.set(lease.id, lease.until)
        // Its owner wants it deleted while the old writer works on it: no rule may move it.
        await things(db).updateOne({ _id: lease.id }, { $set: { state: 'Deleted' } })
        await sleep(60)
        const now = await things(db).findOne({ _id: lease.id })
        if (now?.['phase'] !== 'Creating') fromUnder += 1
        leased.delete(lease.id)
        const outcome = `by the old writer ${clockAheadMs}`
        await legacy.finish(lease.id, 'Creating', { phase: 'Handled', outcome, state: null })
        outcomes.set(lease.id, outcome)
      }
    }
    await Promise.all([0, 150, -150, 30].map(service))
    await Promise.all(replicas.map((replica) => replica.stop()))
    for (const doc of await things(db).find().toArray()) {
      const outcome = outcomes.get(doc._id)
      if (outcome && (doc['phase'] !== 'Handled' || doc['outcome'] !== outcome)) overwritten += 1
    }
    expect({ fromUnder, overwritten }).toEqual({ fromUnder: 0, overwritten: 0 })
    expect(outcomes.size).toBe(300)
    expect(ours).toBeGreaterThan(200)
    expect(observer.losses).toEqual([])
  })
})
