import { describe, expect, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { Limits, Replica, type RunnableLifecycle } from '../../src/index.js'
import { LIMITS_COLLECTION } from '../../src/lock/index.js'
import type { Claimer } from '../../src/phases/engine/claim/claimer.js'
import type { PhaseQueues } from '../../src/phases/engine/claim/phase-queues.js'
import { sleep } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { recordingLogger, thingOf, thingSpec, things, thingWith } from '../support/thing.js'

/** So long documents have waited before commands are counted, and for so long these are. */
const SETTLED_MS = 3_000
const COUNTED_MS = 3_000

const queueOf = (claimer: Claimer) => (claimer as never as { queues: PhaseQueues }).queues.of('Creating')!

describe('documents that wait for slots', () => {
  const ends = useEnds()
  // After that, so that it goes last.
  const database = useDatabase()

  const full = (_id: string, more: object = {}) =>
    database.db.collection<{ _id: string }>(LIMITS_COLLECTION).insertOne({
      ...{ _id, slots: 2, waiting: [], ...more },
      holders: [{ by: 'gone~1', slots: 2, until: new Date(Date.now() + 3_600_000) }],
    } as never)
  const keyed = { limitBy: 'tenant', each: 2 }
  const key = (lifecycle = 'thing') => full(`${lifecycle} tenant=a`, { key: true, declared: 2 })
  const belt = () => new Limits(database.db).set('belt', { slots: 3 })

  /** How many commands one replica of lifecycles sends in a second. */
  async function perSecond(lifecycles: readonly RunnableLifecycle[]): Promise<number> {
    const client = await new MongoClient(database.uri, { monitorCommands: true }).connect()
    ends.push(() => client.close())
    const db = client.db(database.db.databaseName)
    const replica = new Replica({ db, lifecycles, logger: recordingLogger(), doorbell: 'off' })
    ends.push(() => replica.stop())
    let sent = 0
    client.on('commandStarted', () => {
      sent += 1
    })
    await replica.start()
    await sleep(SETTLED_MS)
    sent = 0
    await sleep(COUNTED_MS)
    return sent / (COUNTED_MS / 1_000)
  }

  /** A replica whose documents need a limit, and what claims them. */
  async function prepared(limit: string) {
    const phases = { ...thingSpec.phases, Creating: { next: ['Created', 'Deleting'], limits: [limit] } }
    const lifecycle = thingWith(async (_doc, step) => step.moveTo('Created'), thingOf({ phases }))
    const replica = new Replica({ db: database.db, lifecycles: [lifecycle], logger: recordingLogger() })
    ends.push(() => replica.stop())
    await replica.prepare()
    const [{ claimer }] = (replica as never as { running: [{ claimer: Claimer }] }).running
    return { replica, claimer }
  }

  test.each([
    ['a limit', { limits: ['belt'] }, {}, [() => full('belt')], 6],
    ['one that is too small', { limits: ['belt'], slots: 5 }, {}, [belt], 6],
    ['an unknown one', { limits: ['belt'] }, {}, [], 6],
    [
      'one that is paused',
      { limits: ['belt'] },
      {},
      [belt, () => new Limits(database.db).pause('belt', { by: 'ana' })],
      6,
    ],
    ['the second of two', { limits: ['belt', 'crane'] }, {}, [belt, () => full('crane')], 15],
    ['those of a key', {}, keyed, [() => key()], 60],
    ['those of a key, and have others', { limits: ['belt'] }, keyed, [belt, () => key()], 60],
  ] as const)(
    '%s: each second costs a few commands, however many wait',
    async (_what, phase, settings, before, most) => {
      for (const prepare of before) await prepare()
      const phases = { ...thingSpec.phases, Creating: { next: ['Created', 'Deleting'], ...phase } }
      const lifecycle = thingWith(async (_doc, step) => step.moveTo('Created'), thingOf({ phases, ...settings }))
      await things(database.db).insertMany(
        Array.from({ length: 1_000 }, (_, i) => ({
          ...{ _id: `d${i}`, phase: 'Creating', tenant: 'a' },
          createdAt: new Date(), // else it is dated once
        })),
      )
      expect(await perSecond([lifecycle])).toBeLessThanOrEqual(most)
      expect(await things(database.db).countDocuments({ phase: 'Creating' })).toBe(1_000)
    },
  )

  test('ten lifecycles of one limit, that wait for those of a key, hardly wake each other', async () => {
    await belt()
    const phases = { ...thingSpec.phases, Creating: { next: ['Created', 'Deleting'], limits: ['belt'] } }
    const lifecycles = Array.from({ length: 10 }, (_, i) =>
      thingWith(
        async (_doc, step) => step.moveTo('Created'),
        thingOf({ name: `t${i}`, collection: `T${i}`, phases, ...keyed }),
      ),
    )
    for (const i of lifecycles.keys()) {
      await key(`t${i}`)
      await database.db
        .collection(`T${i}`)
        .insertMany(Array.from({ length: 20 }, () => ({ phase: 'Creating', tenant: 'a' })))
    }
    expect(await perSecond(lifecycles)).toBeLessThanOrEqual(350)
  })

  test('behind 3,000 values without a slot, once they are known, one that has some is found soon', async () => {
    const until = new Date(Date.now() + 3_600_000)
    const tenants = Array.from({ length: 3_000 }, (_, i) => `t${i}`)
    await database.db.collection<{ _id: string }>(LIMITS_COLLECTION).insertMany(
      tenants.map((tenant) => ({
        ...{ _id: `thing tenant=${tenant}`, key: true, declared: 1, waiting: [] },
        holders: [{ by: 'gone~1', slots: 1, until }],
      })),
    )
    await things(database.db).insertMany(tenants.map((tenant) => ({ _id: `d-${tenant}`, phase: 'Creating', tenant })))
    const lifecycle = thingWith(async (_doc, step) => step.moveTo('Created'), thingOf({ limitBy: 'tenant', each: 1 }))
    const replica = new Replica({
      db: database.db,
      lifecycles: [lifecycle],
      logger: recordingLogger(),
      doorbell: 'off',
    })
    ends.push(() => replica.stop())
    await replica.start()
    // The first ones are how it gets to know them.
    const isFound = async (_id: string) => (await things(database.db).countDocuments({ _id, phase: 'Created' })) === 1
    let inTime = 0
    for (let i = 0; inTime < 5; i += 1) {
      const _id = `zz${i}`
      await things(database.db).insertOne({ _id, phase: 'Creating', tenant: _id } as never)
      const from = Date.now()
      while (!(await isFound(_id))) await sleep(50)
      // A tick may pass before it is looked for at all.
      inTime = Date.now() - from < 2_000 ? inTime + 1 : 0
    }
  }, 90_000)

  test('what is no longer due waits for no slot', async () => {
    await full('belt')
    const { replica, claimer } = await prepared('belt')
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.tick()
    await replica.idle()
    expect(claimer.waitsForSlots('Creating')).toBe(true)
    await things(database.db).deleteMany({})
    await replica.tick()
    await replica.idle()
    expect(claimer.waitsForSlots('Creating')).toBe(false)
    expect(queueOf(claimer).wakesAtMs).toBe(Number.POSITIVE_INFINITY)
  })

  test('ids that were rung for are forgotten where there is no slot for them', async () => {
    const { claimer } = await prepared('none')
    for (let i = 0; i < 5; i += 1) {
      claimer.offerNamed('Creating', [`a${i}`, `b${i}`])
      await claimer.current
    }
    const { awaited, expected } = queueOf(claimer) as never as Record<'awaited' | 'expected', Set<string>>
    expect(awaited.size + expected.size).toBe(0)
  })
})
