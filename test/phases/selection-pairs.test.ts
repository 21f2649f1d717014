import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import type { Replica, ReplicaOptions } from '../../src/index.js'
import { LIMITS_COLLECTION } from '../../src/lock/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { replicaOf, SteppedClock, type Thing, thingOf, things, thingWith } from '../support/thing.js'

type Ranked = Thing & { priority?: string; tenant?: string }

describe('ranks beside what holds documents back', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()

  const insert = (n: number, priority: string, fields: Document = {}) =>
    things(database.db).insertMany(
      Array.from({ length: n }, (_, i) => ({
        _id: `${priority}${i}`,
        phase: 'Creating',
        priority,
        ...fields,
      })) as never,
    )

  /** Replicas of a lifecycle with ranks; what begins, in order. */
  async function prepared(count: number, settings: object, options: Partial<ReplicaOptions> = {}) {
    const begun: string[] = []
    const lifecycle = thingWith(
      async (doc: Ranked, step) => {
        begun.push(doc._id)
        return step.moveTo('Created')
      },
      thingOf({ priorityBy: 'priority', ...settings }),
    )
    const own = Array.from({ length: count }, () => replicaOf(database.db, lifecycle, options))
    replicas.push(...own)
    for (const replica of own) await replica.prepare()
    return { begun, own }
  }

  async function runAll(own: readonly Replica[]) {
    while ((await things(database.db).countDocuments({ phase: 'Creating' })) > 0)
      await Promise.all(own.map((replica) => replica.runOnce()))
  }

  test('of a tenant with one slot the urgent ones come first, beside the sixteenth of the low ones', async () => {
    await insert(20, 'low', { tenant: 'a' })
    await insert(20, 'urgent', { tenant: 'a' })
    const { begun, own } = await prepared(1, { limitBy: 'tenant', each: 1 })
    await runAll(own)
    expect(begun).toHaveLength(40)
    // On average there is one.
    expect(begun.slice(0, 20).filter((id) => id.startsWith('low')).length).toBeLessThan(10)
  })

  test('an urgent document of a tenant overtakes a backlog of it, of which two replicas may each do little at once', async () => {
    await insert(100, 'normal', { tenant: 'a' })
    await insert(1, 'urgent', { tenant: 'a' })
    const { begun, own } = await prepared(2, { limitBy: 'tenant', each: 2 })
    await runAll(own)
    expect(begun).toHaveLength(101)
    expect(begun.indexOf('urgent0')).toBeLessThan(60)
  })

  test('an urgent document in the middle of what its tenant has due is in the first claim', async () => {
    await insert(30, 'normal', { tenant: 'a' })
    await insert(1, 'urgent', { tenant: 'a' })
    await insert(100, 'low', { tenant: 'a' })
    const sizes: number[] = []
    const observer = { claimed: ({ claimed }: { claimed: number }) => void sizes.push(claimed) }
    const { begun, own } = await prepared(1, { fairBy: 'tenant', concurrency: 16 }, { observer })
    await own[0]!.runOnce()
    expect(begun).toHaveLength(131)
    expect(begun.indexOf('urgent0')).toBeLessThan(sizes[0]!)
  })

  test('a document on its last claim that waits for a slot of its tenant keeps no others waiting', async () => {
    const clock = new SteppedClock()
    const holders = [{ by: 'gone~1', slots: 1, until: new Date(Date.now() + 600_000) }]
    const limits = database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION)
    await limits.insertOne({ _id: 'thing tenant=a', key: true, declared: 1, holders, waiting: [] })
    const last = { tenant: 'a', lockedAt: new Date(1_000), progress: { claims: 9 } }
    await insert(1, 'urgent', last)
    const { begun, own } = await prepared(1, { limitBy: 'tenant', each: 1 }, { clock })
    const [replica] = own
    const { running } = replica as never as { running: { claimer: { current?: Promise<void> } }[] }
    for (let second = 0; second < 9; second += 1) {
      await things(database.db).insertOne({ _id: `b${second}`, phase: 'Creating', tenant: 'b' } as never)
      await replica!.tick()
      for (const { claimer } of running) await claimer.current
      await eventually(() => replica!.status().held === 0)
      expect(begun).toContain(`b${second}`)
      clock.advance(1_000)
    }
    expect(begun).not.toContain('urgent0')
  })
})
