import { afterEach, describe, expect, test } from '@jest/globals'
import { BSONRegExp, type Document } from 'mongodb'
import { InvalidLifecycle, Limits, lifecycleOf, type Replica, type ReplicaOptions } from '../../src/index.js'
import { forgetOldKeys, LIMITS_COLLECTION } from '../../src/lock/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { withFailingClaims } from '../support/failing-claims.js'
import {
  gate,
  recordingLogger,
  replicaOf,
  type Thing,
  thing,
  thingOf,
  thingSpec,
  things,
  thingWith,
} from '../support/thing.js'

describe('limitBy', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()
  const limits = () => database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION)

  /** What a replica leaves that was killed: it has all slots of tenant a, for a minute. */
  const killedWithAll = () => {
    const holders = [{ by: 'gone~1', slots: 3, until: new Date(Date.now() + 60_000) }]
    return limits().insertOne({ _id: 'thing tenant=a', key: true, declared: 3, holders, waiting: [] })
  }

  type Keyed = Thing & { tenant?: unknown }

  /** Replicas whose handlers count how many run at once, of each tenant. */
  function counted(work: (doc: Keyed) => Promise<unknown> = () => sleep(5), settings: object = {}) {
    const running = new Map<unknown, number>()
    const seen = { most: new Map<unknown, number>(), runs: [] as string[] }
    const lifecycle = thingWith(
      async (doc: Keyed, step) => {
        const now = (running.get(doc.tenant) ?? 0) + 1
        running.set(doc.tenant, now)
        seen.most.set(doc.tenant, Math.max(seen.most.get(doc.tenant) ?? 0, now))
        seen.runs.push(doc._id)
        try {
          await work(doc)
        } finally {
          running.set(doc.tenant, running.get(doc.tenant)! - 1)
        }
        return step.moveTo('Created')
      },
      thingOf({ limitBy: 'tenant', each: 3, ...settings }),
    )
    const prepared = async (options: Partial<ReplicaOptions> = {}) => {
      const logger = recordingLogger()
      const replica = replicaOf(database.db, lifecycle, { logger, ...options })
      replicas.push(replica)
      await replica.prepare()
      return { replica, logger }
    }
    return { lifecycle, seen, prepared, most: () => Math.max(...seen.most.values()) }
  }

  const insert = (n: number, tenant?: unknown, prefix = `${tenant}x`) =>
    things(database.db).insertMany(
      Array.from({ length: n }, (_, i) => ({
        _id: `${prefix}${i}`,
        phase: 'Creating',
        ...(tenant !== undefined && { tenant }),
      })),
    )
  const created = () => things(database.db).countDocuments({ phase: 'Created' })

  test('no more of a tenant at once on three replicas, and all are done once, without a claim in vain', async () => {
    const { seen, prepared, most } = counted()
    for (let i = 0; i < 3; i += 1) await (await prepared()).replica.start()
    for (const tenant of ['a', 'b', 'c', 'd', 'e']) await insert(40, tenant)
    await eventually(async () => expect(await created()).toBe(200), { timeoutMs: 60_000 })
    expect(most()).toBeLessThanOrEqual(3)
    expect(new Set(seen.runs).size).toBe(200)
    expect(seen.runs).toHaveLength(200)
    expect(await things(database.db).countDocuments({ 'progress.claims': { $gt: 0 } })).toBe(0)
  })

  test('all that one tenant has are used; others go on behind 2,000 documents of one that is busy', async () => {
    const end = gate()
    const { seen, prepared } = counted((doc) => (doc.tenant === 'busy' ? end.wait : Promise.resolve()))
    const { replica } = await prepared()
    await insert(2_000, 'busy')
    await insert(50, 'other')
    await insert(20, undefined, 'none')
    await replica.start()
    await eventually(async () => expect(await created()).toBe(70), { timeoutMs: 20_000 })
    expect(seen.most.get('busy')).toBe(3)
    expect(seen.runs.filter((id) => id.startsWith('busy'))).toHaveLength(3)
    expect(await things(database.db).countDocuments({ tenant: 'busy', fence: { $exists: true } })).toBe(3)
    end.open()
  })

  test('with ranks, too: others go on, of any rank, behind 2,000 urgent documents of one tenant that is busy', async () => {
    const end = gate()
    const settings = { priorityBy: 'priority' }
    const { seen, prepared } = counted((doc) => (doc.tenant === 'busy' ? end.wait : Promise.resolve()), settings)
    const { replica } = await prepared()
    await insert(2_000, 'busy')
    await things(database.db).updateMany({}, { $set: { priority: 'urgent' } })
    await insert(50, 'other')
    await things(database.db).updateOne({ _id: 'otherx49' }, { $set: { priority: 'urgent' } })
    await insert(20, 'third')
    await things(database.db).updateMany({ tenant: 'third' }, { $set: { priority: 'low' } })
    await replica.start()
    await eventually(async () => expect(await created()).toBe(70), { timeoutMs: 20_000 })
    expect(seen.runs.filter((id) => id.startsWith('busy'))).toHaveLength(3)
    end.open()
  })

  test('a tenant whose value no query can name, and that has none free, holds up no others behind many documents', async () => {
    const end = gate()
    const { seen, prepared } = counted((doc) => (doc._id.startsWith('bad') ? end.wait : Promise.resolve()))
    const { replica, logger } = await prepared()
    await insert(10, { $a: 1 }, 'bad')
    for (let i = 0; i < 100; i += 1) await insert(20, `t${i}`)
    await replica.start()
    await eventually(async () => expect(await created()).toBe(2_000), { timeoutMs: 30_000 })
    expect(seen.runs.filter((id) => id.startsWith('bad'))).toHaveLength(3)
    end.open()
    await eventually(async () => expect(await created()).toBe(2_010), { timeoutMs: 20_000 })
    expect(logger.lines.filter(({ level }) => level === 'error')).toEqual([])
  })

  test.each([[true], [false], [new Date(0)], [new Date('1900-01-01')], [5], [null]])(
    'a value that is %p has its turn behind 200 documents of one that is full',
    async (free) => {
      const { prepared, seen } = counted()
      const until = new Date(Date.now() + 60_000)
      const _id = 'thing tenant=a'
      await limits().insertOne({
        _id,
        key: true,
        declared: 3,
        holders: [{ by: 'gone~1', slots: 3, until }],
        waiting: [],
      })
      await insert(200, 'a')
      await insert(3, free, 'free')
      await insert(3, 'other')
      const { replica } = await prepared()
      await replica.runOnce()
      expect(seen.runs.sort()).toEqual(['free0', 'free1', 'free2', 'otherx0', 'otherx1', 'otherx2'])
    },
  )

  test('1,000 tenants: all are done, and nothing is left of their limits', async () => {
    const { prepared, most } = counted(async () => undefined, { each: 1 })
    await things(database.db).insertMany(
      Array.from({ length: 2_000 }, (_, i) => ({ _id: `d${i}`, phase: 'Creating', tenant: `t${i % 1_000}` })),
    )
    const [one, other] = [await prepared(), await prepared()]
    await Promise.all([one.replica.start(), other.replica.start()])
    await eventually(async () => expect(await created()).toBe(2_000), { timeoutMs: 60_000 })
    expect(most()).toBe(1)
    await Promise.all([one.replica.stop(), other.replica.stop()])
    expect(await limits().countDocuments({ 'holders.0': { $exists: true } })).toBe(0)
    // What two replicas wanted at the same time is left for the next hour.
    await limits().updateMany({}, [{ $set: { askedAt: { $subtract: ['$$NOW', 3_700_000] } } }])
    await forgetOldKeys(database.db)
    expect(await limits().countDocuments()).toBe(0)
  })

  test('what a killed replica had is free when its lease is over, and runOnce() ends before that', async () => {
    const { prepared, seen } = counted()
    const { replica } = await prepared()
    await killedWithAll()
    await insert(5, 'a')
    await replica.runOnce()
    expect(seen.runs).toEqual([])
    await limits().updateOne({ _id: 'thing tenant=a' }, [
      { $set: { holders: [{ by: 'gone~1', slots: 3, until: '$$NOW' }] } },
    ])
    await eventually(async () => {
      await replica.runOnce()
      expect(await created()).toBe(5)
    })
  })

  test('where the phase has a limit, too, slots that no claim had a use for set off no further one', async () => {
    await new Limits(database.db).set('belt', { slots: 4 })
    const phases = { ...thingSpec.phases, Creating: { next: ['Created', 'Deleting'], limits: ['belt'] } }
    const { prepared, seen } = counted(undefined, { phases })
    const { replica } = await prepared()
    await killedWithAll()
    await insert(5, 'a')
    await replica.runOnce()
    expect(seen.runs).toEqual([])
  })

  test('a claim that fails is left to the next look, though it gives back what it had', async () => {
    const { lifecycle } = counted()
    let claims = 0
    const failing = withFailingClaims(database.db, 'Thing', () => {
      claims += 1
      return true
    })
    const replica = replicaOf(failing, lifecycle, { logger: recordingLogger() })
    replicas.push(replica)
    await replica.prepare()
    await insert(9, 'a') // more than have slots
    await replica.tick()
    await replica.idle()
    expect(claims).toBe(1)
  })

  test.each([
    ['s', new BSONRegExp('a/b', 's')],
    ['x', new BSONRegExp('a/b', 'x')],
    ['no JavaScript', new BSONRegExp('(?P<a>b)', 'i')],
    ['inside, x', { a: [new BSONRegExp('a.b', 'x')] }],
    ['inside, s', { a: new BSONRegExp('a.b', 's') }],
  ])('a value that is a regular expression (%s) is a key, and costs no others theirs', async (_what, tenant) => {
    const { prepared, seen } = counted(undefined, { each: 2 })
    const { replica, logger } = await prepared()
    for (let i = 0; i < 5; i += 1) await insert(1, `t${i}`)
    await insert(3, tenant, 'odd')
    await replica.runOnce()
    const left = await things(database.db).find({ phase: 'Creating' }, { bsonRegExp: true }).toArray()
    // One that the driver can't read is parked.
    expect(left.map(({ lockedAt }) => lockedAt)).toEqual(left.map(() => new Date('9999-12-31')))
    expect(await created()).toBe(8 - left.length)
    expect(seen.runs).toHaveLength(8 - left.length)
    expect(logger.lines.filter(({ message }) => message.includes('broke'))).toEqual([])
    expect(replica.status()).toMatchObject({ held: 0, limits: [{ used: 0 }] })
  })

  test('documents without a value have a limit together', async () => {
    const { prepared, seen } = counted()
    await insert(10, undefined, 'missing')
    await insert(10, null, 'null')
    const { replica } = await prepared()
    await replica.start()
    await eventually(async () => expect(await created()).toBe(20), { timeoutMs: 20_000 })
    expect((seen.most.get(undefined) ?? 0) + (seen.most.get(null) ?? 0)).toBeLessThanOrEqual(6)
  })

  test('a person sets what one tenant has, and takes it back', async () => {
    const set = new Limits(database.db)
    const end = gate()
    const { prepared, seen } = counted(() => end.wait)
    await set.set('thing tenant=vip', { slots: 5 })
    await set.set('thing tenant=banned', { slots: 0 })
    for (const tenant of ['vip', 'banned', 'other']) await insert(10, tenant)
    const { replica } = await prepared()
    await replica.start()
    const runs = (tenant: string) => seen.runs.filter((id) => id.startsWith(tenant)).length
    await eventually(() => expect([runs('vip'), runs('banned'), runs('other')]).toEqual([5, 0, 3]))
    expect(await set.list()).toEqual([])
    expect((await set.list({ keys: true })).map(({ name, slots }) => `${name}: ${slots}`)).toEqual([
      'thing tenant=banned: 0',
      'thing tenant=other: 3',
      'thing tenant=vip: 5',
    ])
    expect(replica.status().limits).toMatchObject([{ limit: 'thing tenant', used: 8, total: null }])
    await set.set('thing tenant=banned', { slots: null })
    await eventually(() => expect(runs('banned')).toBe(3))
    end.open()
  })

  test('a rate of each', async () => {
    const { prepared, seen } = counted(async () => undefined, { each: { rate: '20/1m' } })
    await insert(30, 'a')
    await insert(1, 'b')
    const { replica } = await prepared()
    await replica.runOnce()
    expect(seen.runs.filter((id) => id.startsWith('a')).length).toBeLessThanOrEqual(3)
    expect(seen.runs).toContain('bx0')
  })

  test('a slow rate of one tenant is raised: that is in force within seconds', async () => {
    const { prepared, seen } = counted(async () => undefined, { each: { rate: '1/1h' } })
    await insert(3, 'a')
    const { replica } = await prepared()
    await replica.runOnce()
    await replica.runOnce()
    expect(seen.runs).toHaveLength(1)
    await new Limits(database.db).set('thing tenant=a', { rate: '1000/1s' })
    await replica.start()
    await eventually(() => expect(seen.runs).toHaveLength(3), { timeoutMs: 20_000 })
  })

  test('what a rate has admitted is remembered for its span: else one a day would be one an hour', async () => {
    const { prepared, seen } = counted(async () => undefined, { each: { rate: '1/1d' } })
    const hoursAgo = (hours: number) =>
      limits().updateMany({}, [{ $set: { askedAt: { $subtract: ['$$NOW', hours * 3_600_000] } } }])
    const tick = async () => {
      const { replica } = await prepared()
      await replica.runOnce()
      await replica.stop()
    }
    await insert(1, 'a')
    await tick()
    await hoursAgo(2)
    await forgetOldKeys(database.db)
    await insert(1, 'a', 'later')
    await tick()
    expect(seen.runs).toEqual(['ax0'])
    await hoursAgo(25)
    await forgetOldKeys(database.db)
    expect(await limits().countDocuments()).toBe(0)
  })

  test('a document whose tenant is changed while it is chosen is let go, and runs under the other', async () => {
    const { prepared, seen } = counted()
    const { replica } = await prepared()
    await insert(1, 'a')
    const write = limits().bulkWrite
    // Between the choice and the claim the slots are asked for.
    const collection = Object.getPrototypeOf(limits())
    collection.bulkWrite = async function (this: { collectionName: string }, ...args: never[]) {
      if (this.collectionName === LIMITS_COLLECTION)
        await things(database.db).updateOne({ _id: 'ax0', tenant: 'a' }, { $set: { tenant: 'b' } })
      return write.apply(this as never, args as never)
    }
    try {
      await replica.runOnce()
    } finally {
      collection.bulkWrite = write
    }
    expect(seen.runs).toEqual(['ax0'])
    expect([...seen.most]).toEqual([['b', 1]])
    expect(await things(database.db).findOne({ _id: 'ax0' })).toMatchObject({ phase: 'Created' })
  })

  test.each([1, 3])(
    '300 documents that refuse writes, in front of the others of their tenant, with %d each',
    async (each) => {
      const { prepared, seen, most } = counted(async () => undefined, { each })
      await database.db.createCollection('Thing', { validator: { $or: [{ bad: { $ne: true } }, { lockedBy: null }] } })
      const { replica } = await prepared()
      const refusing = Array.from({ length: 300 }, (_, i) => ({
        _id: `a${i}`,
        phase: 'Creating',
        tenant: 'a',
        bad: true,
      }))
      await things(database.db).insertMany(refusing)
      await insert(20, 'a', 'z')
      await insert(20, 'b')
      await replica.start()
      await eventually(async () => expect(await created()).toBe(40), { timeoutMs: 60_000 })
      expect(most()).toBeLessThanOrEqual(each)
      expect(seen.runs).toHaveLength(40)
    },
  )

  test('other limits hold too', async () => {
    const { prepared, seen } = counted(() => sleep(5), { maxActive: 4 })
    for (const tenant of ['a', 'b', 'c']) await insert(10, tenant)
    const { replica } = await prepared()
    await replica.runOnce()
    await eventually(async () => {
      await replica.runOnce()
      expect(await created()).toBe(30)
    })
    expect(seen.runs).toHaveLength(30)
    expect(Math.max(...seen.most.values())).toBeLessThanOrEqual(3)
  })

  test.each([
    [{ limitBy: 'tenant' }, 'expected limitBy and each together'],
    [{ each: 3 }, 'expected limitBy and each together'],
    [{ limitBy: 'tenant', each: 0 }, 'each: expected a whole number from 1 to 1000000'],
    [{ limitBy: 'tenant', each: -1.5 }, 'each: expected a whole number from 1 to 1000000'],
    [{ limitBy: 'tenant', each: {} }, 'each: expected slots, a rate or both, got neither'],
    [{ limitBy: 'tenant', each: { rate: '5' } }, "each.rate: expected how many in a span of time, such as '100/1m'"],
    [{ limitBy: 'tenant', each: { slot: 5 } }, "unknown setting 'each.slot'"],
    [
      { limitBy: 'constructor', each: 3 },
      "limitBy: expected the name of a top-level field, such as 'tenantId' (at most 100 characters), got 'constructor'",
    ],
    [
      { limitBy: 'tenant', each: 3, fairBy: 'other' },
      "limitBy and fairBy: expected the same field, got 'tenant' and 'other'",
    ],
    [{ fairBy: 'progress' }, "fairBy: expected a field of the owner, got 'progress', in which Phaselock keeps its own"],
    [{ priorityBy: 'ours', fields: { progress: 'ours' } }, "priorityBy: expected a field of the owner, got 'ours', in"],
    [{ limitBy: 'progress', each: 1 }, "limitBy: expected a field of the owner, got 'progress'"],
  ])('%j is refused', (wrong, message) => {
    const define = () =>
      lifecycleOf<Thing>().define({ name: 'thing', collection: 'Thing', phases: thing.phases, ...wrong } as never)
    expect(define).toThrow(InvalidLifecycle)
    expect(define).toThrow(message)
  })
})
