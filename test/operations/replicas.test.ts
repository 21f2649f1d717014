import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import type { Replica } from '../../src/index.js'
import { LIFECYCLES_COLLECTION, REPLICAS_COLLECTION } from '../../src/lock/index.js'
import { listReplicas, NotFound, type System, showDocument } from '../../src/operations/index.js'
import { systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { backDate, gate, replicaOf, ShiftedClock, thing, things, thingWith } from '../support/thing.js'

describe('the replicas that are listed', () => {
  const replicas: Replica[] = []
  const hangs = gate()
  afterEach(async () => {
    hangs.open()
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()

  const system = (): System => ({ db: database.db, models: [thing.model], doorbell: 'off' })
  const documents = () => database.db.collection<Document & { _id: string }>(REPLICAS_COLLECTION)
  /** It was last heard of that long ago, by the server's clock. */
  const lastSeen = (name: string, ms: number) =>
    documents().updateOne({ _id: name }, [{ $set: { seenAt: { $subtract: ['$$NOW', ms] } } }], { upsert: true })

  async function present(name: string, clock = new ShiftedClock()) {
    const handler = thingWith(async (_doc, step) => {
      await hangs.wait
      return step.moveTo('Created')
    })
    const replica = replicaOf(database.db, handler, { name, clock, doorbell: 'off' })
    replicas.push(replica)
    await replica.prepare()
    replica.wakeBetweenTicks()
    await replica.tick()
    await eventually(async () => expect(await documents().findOne({ _id: replica.identity })).not.toBeNull())
    return replica
  }

  test('a dead one is shown with what it still leases, until another one takes it; how long that takes is a setting', async () => {
    const dies = await present('dies')
    await things(database.db).insertMany([
      { _id: 'a', phase: 'Creating' },
      { _id: 'b', phase: 'Creating' },
    ])
    await dies.tick()
    await eventually(() => expect(dies.status().running).toBe(2))
    const one = async (request = {}) => (await listReplicas(system(), request)).replicas[0]!
    expect(await one()).toMatchObject({ name: dies.identity, live: true, lifecycles: [{ name: 'thing' }] })
    expect(await one()).not.toHaveProperty('leased')
    const leased = [
      { lifecycle: 'thing', _id: 'a', phase: 'Creating', until: expect.any(Date) },
      { lifecycle: 'thing', _id: 'b', phase: 'Creating', until: expect.any(Date) },
    ]
    const byName = (await one({ name: dies.identity })).leased!
    expect([...byName].sort((x, y) => (String(x._id) < String(y._id) ? -1 : 1))).toEqual(leased)

    await lastSeen(dies.identity, 31_000)
    expect(await one()).toMatchObject({ live: false, leased: expect.arrayContaining(leased) })
    expect(await one({ deadAfter: '1m' })).toMatchObject({ live: true })
    expect(await showDocument(system(), { id: 'a' })).toMatchObject({ holder: { name: dies.identity, live: false } })

    // Its lease has run out long ago, and nobody has taken the document.
    await lastSeen(dies.identity, 3_600_000)
    await backDate(database.db, 'a', 3_600_000)
    await things(database.db).updateOne({ _id: 'b' }, { $set: { lockedBy: 'another~1#1.1' } })
    expect((await one()).leased).toEqual([leased[0]])
    expect(await showDocument(system(), { id: 'a' })).toMatchObject({
      condition: { kind: 'due' },
      holder: { name: dies.identity, live: false },
    })
    expect((await showDocument(system(), { id: 'b' })).holder).toBeUndefined()
    hangs.open()
    await dies.idle()
  })

  test('a paused one is live again with its next beat, and so is one that the clock made dead', async () => {
    const clock = new ShiftedClock()
    const replica = await present('paused', clock)
    await lastSeen(replica.identity, 60_000)
    expect((await listReplicas(system())).replicas).toMatchObject([{ live: false }])
    // The server's clock has stepped back since.
    await lastSeen(replica.identity, -60_000)
    expect((await listReplicas(system())).replicas).toMatchObject([{ live: false }])
    await eventually(async () => {
      clock.advance(60_000)
      await replica.tick()
      expect((await listReplicas(system())).replicas).toMatchObject([{ name: replica.identity, live: true }])
    })
  })

  test('one of an older version has its name, lifecycles and last report; what a person has put there is not listed', async () => {
    const replica = await present('new')
    await database.db
      .collection<{ _id: string }>(LIFECYCLES_COLLECTION)
      .updateOne({ _id: 'thing' }, [
        { $set: { replicas: { $concatArrays: ['$replicas', [{ name: 'older~1', seenAt: '$$NOW' }]] } } },
      ])
    const tenMinutesAgo = new Date(systemClock.now().getTime() - 600_000)
    await documents().insertMany([
      { _id: 'nothing' },
      { _id: 'wrong', seenAt: 'now', lifecycles: [{ name: 'thing' }] },
      { _id: 'odd~1', seenAt: tenMinutesAgo, lifecycles: [{ name: 'thing', places: 'many' }, 7, null], version: 7 },
      { _id: 'other~1', seenAt: tenMinutesAgo, lifecycles: [{ name: 'other' }] },
    ])
    const { replicas: listed, now } = await listReplicas(system())
    expect(listed.map(({ name, live }) => [name, live])).toEqual([
      [replica.identity, true],
      ['odd~1', false],
      ['older~1', true],
    ])
    expect(listed[1]).not.toHaveProperty('version')
    expect(listed[2]).toEqual({
      name: 'older~1',
      live: true,
      lifecycles: [{ name: 'thing' }],
      seenAt: expect.any(Date),
    })
    expect(Math.abs(now.getTime() - listed[0]!.seenAt.getTime())).toBeLessThan(10_000)
  })

  test('one that is not there, and a duration that is none', async () => {
    await present('here')
    await expect(listReplicas(system(), { name: 'nobody~1' })).rejects.toThrow(NotFound)
    await expect(listReplicas(system(), { deadAfter: 'soon' })).rejects.toThrow(/soon/)
  })
})
