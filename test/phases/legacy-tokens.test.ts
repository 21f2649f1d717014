import { describe, expect, jest, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { endLeasesOf, LIFECYCLES_COLLECTION, type Terms, uncountClaims } from '../../src/lock/index.js'
import { Holder, NoLongerHeld } from '../../src/phases/index.js'
import {
  ago,
  claimed,
  claimer,
  clientAt,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  PHASE,
  put,
  read,
} from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { recordingObserver, replicaOf, ShiftedClock, type Thing, thingOf, things, thingWith } from '../support/thing.js'
import { BLIND, LegacyWriter, TERMS } from './legacy-writer.js'

jest.setTimeout(240_000)

describe('hole 11: writers of the old kind, which lease without lockedBy', () => {
  const database = useDatabase()

  describe('our token under the lease of such a writer, which took over what had expired', () => {
    /** Our lease on `a` has expired and the other one has it; our lockedBy is still there. */
    async function takenOver(terms: Terms) {
      const collection = await lockedCollection(database.db)
      const lifecycles = database.db.collection<{ _id: string; lockTimeout: number }>(LIFECYCLES_COLLECTION)
      await lifecycles.insertOne({ _id: 'thing', lockTimeout: LOCK_TIMEOUT_MS })
      await put(collection, { _id: 'a', phase: PHASE })
      const replica = await claimer(collection, { terms })
      const { lease } = await claimed(collection, replica)
      await expire(collection)
      await new LegacyWriter(collection as never, LOCK_TIMEOUT_MS).findAndLock(PHASE)
      const document = await read(collection, 'a')
      expect(document).toMatchObject({ lockedBy: lease.token })
      return { collection, replica, lease, document }
    }
    const expire = (collection: Collection) =>
      collection.updateOne({ _id: 'a' as never }, [
        {
          $set: {
            lockedAt: ago(31_000),
            'progress.lockedAt': { $cond: ['$progress.lockedAt', ago(31_000), '$$REMOVE'] },
          },
        },
      ])

    async function recovered(terms: Terms): Promise<number> {
      const { collection, replica } = await takenOver(terms)
      const leased = { lifecycle: 'thing', collection, phases: [PHASE], terms }
      return endLeasesOf(database.db, leased, replica.identity)
    }
    test('early recovery leaves its lease alone', async () => {
      expect(await recovered(TERMS)).toBe(0)
    })
    test('negative control: without legacyWriters early recovery ends it', async () => {
      expect(await recovered(BLIND)).toBe(1)
    })

    test('early recovery ends what the process that has ended still had', async () => {
      const { collection, replica } = await takenOver(TERMS)
      await put(collection, { _id: 'b', phase: PHASE })
      await claimed(collection, replica)
      const leased = { lifecycle: 'thing', collection, phases: [PHASE], terms: TERMS }
      expect(await endLeasesOf(database.db, leased, replica.identity)).toBe(1)
    })

    test('a second pass of early recovery leaves a lease alone that began in the millisecond of the one it ended', async () => {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE })
      const replica = await claimer(collection, { terms: TERMS })
      await database.db
        .collection<Document & { _id: string }>(LIFECYCLES_COLLECTION)
        .insertOne({ _id: 'thing', lockTimeout: LOCK_TIMEOUT_MS })
      const { document } = await claimed(collection, replica)
      const leased = { lifecycle: 'thing', collection, phases: [PHASE], terms: TERMS }
      expect(await endLeasesOf(database.db, leased, replica.identity)).toBe(1)
      await collection.updateOne({ lockedAt: new Date(0) }, { $set: { lockedAt: document['lockedAt'] } })
      expect(await endLeasesOf(database.db, leased, replica.identity)).toBe(0)
    })

    test('a stop in order changes nothing of the document', async () => {
      const { collection, lease, document } = await takenOver(TERMS)
      await uncountClaims(collection, TERMS, [lease])
      expect(await read(collection, 'a')).toEqual(document)
      // Negative control.
      await uncountClaims(collection, BLIND, [lease])
      expect(await read(collection, 'a')).not.toEqual(document)
    })

    /** What a handler's writes under its document's lease have come to, while the other one has it. */
    async function handlersWrites(legacyWriters: boolean): Promise<string[]> {
      const { db } = database
      const collection = db.collection<Document>('Thing')
      const said: string[] = []
      const attempted = async (what: string, attempt: Promise<unknown>) => {
        const how = await attempt.then(
          () => 'done',
          (error: Error) => (error instanceof NoLongerHeld ? 'refused' : String(error)),
        )
        said.push(`${what} ${how}`)
      }
      const handler = thingWith(async (doc: Readonly<Thing>, step) => {
        const holder = new Holder(collection, doc as never, step as never)
        await attempted('held:', holder.assertHeld())
        await collection.updateOne({ _id: doc._id as never }, [
          { $set: { lockedAt: ago(31_000), ...(legacyWriters && { 'progress.lockedAt': ago(31_000) }) } },
        ])
        await new LegacyWriter(things(db), LOCK_TIMEOUT_MS).findAndLock('Creating')
        await attempted('held:', holder.assertHeld())
        await attempted('set', holder.set({ n: 7 }))
        await holder.insert({ _id: 'child' }, { collection: 'Children' })
        said.push(`inserted ${await db.collection('Children').countDocuments()}`)
        return step.moveTo('Created')
      }, thingOf({ legacyWriters }))
      await things(db).insertOne({ _id: 'a', phase: 'Creating' })
      await replicaOf(db, handler).tick()
      await eventually(() => said.length === 4)
      return said
    }
    test("a handler's writes under it are refused", async () => {
      expect(await handlersWrites(true)).toEqual(['held: done', 'held: refused', 'set refused', 'inserted 0'])
    })
    test('negative control: without legacyWriters a handler writes', async () => {
      expect(await handlersWrites(false)).toEqual(['held: done', 'held: done', 'set done', 'inserted 1'])
    })

    test('a chain does not go on with the document', async () => {
      const proxy = await TcpProxy.start(database.uri)
      const client = await clientAt(proxy.uri)
      const clock = new ShiftedClock()
      let steps = 0
      const handler = thingWith(
        async (_doc, step) => {
          steps += 1
          clock.advance(2_000) // longer than a chain goes on without reading its document again
          return steps < 3 ? step.again() : step.moveTo('Created')
        },
        thingOf({ legacyWriters: true }),
      )
      const observer = recordingObserver()
      const replica = replicaOf(client.db(database.db.databaseName), handler, { clock, observer })
      try {
        await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
        const lookAgain = proxy.hold(
          ({ name, body: { filter, projection } }) =>
            name === 'find' && filter?._id?.$in !== undefined && !projection && !filter.lockedBy,
        )
        await replica.tick()
        const held = await lookAgain
        await expire(database.db.collection('Thing'))
        await new LegacyWriter(things(database.db), LOCK_TIMEOUT_MS).findAndLock('Creating')
        held.release()
        await replica.idle()
        expect(steps).toBe(1)
        expect(observer.losses).toHaveLength(1)
      } finally {
        await replica.stop()
        await client.close()
        await proxy.stop()
      }
    })

    test.each(['read by its token', 'read back after an answer that was lost'])(
      'a claim that is %s does not begin with the document',
      async (how) => {
        const proxy = await TcpProxy.start(database.uri)
        const client = await clientAt(proxy.uri)
        try {
          const collection = await lockedCollection(database.db)
          await put(collection, { _id: 'a', phase: PHASE }, { _id: 'b', phase: PHASE })
          const through = client.db(database.db.databaseName).collection(collection.collectionName)
          const replica = await claimer(through, { terms: TERMS })
          const reading = proxy.hold(({ name, body }) => name === 'find' && body['filter']?.lockedBy !== undefined)
          if (how.includes('lost')) void proxy.cutAfter('update')
          const claiming = replica.claims.claimBatch(PHASE, 10)
          const held = await reading
          await expire(collection)
          await new LegacyWriter(collection as never, LOCK_TIMEOUT_MS).findAndLock(PHASE)
          held.release()
          expect((await claiming).claimed.map(({ lease }) => lease.id)).toEqual(['b'])
        } finally {
          await client.close()
          await proxy.stop()
        }
      },
    )
  })
})
