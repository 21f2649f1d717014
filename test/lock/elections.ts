import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { Collection, Document, MongoClient } from 'mongodb'
import { protocolClient, protocolClientOptions, protocolCollection } from '../../src/database/index.js'
import { traceOf } from '../../src/lock/end/read-back.js'
import { type EndKind, type Lease, Renewals, type StepEnd, type Verdict } from '../../src/lock/index.js'
import { systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { ReplicaSetProxy, SET_FAULTS, type SetFault } from '../support/replica-set-proxy.js'
import { ShiftedClock } from '../support/thing.js'
import {
  again,
  ago,
  checkpoint,
  claimed,
  claimer,
  endOf,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  moveTo,
  PHASE,
  put,
  read,
  serverNow,
  TERMS,
  wait,
  writer,
} from './fixture.js'

type Command = { name: string; body: Document }

const FAULTS = Object.keys(SET_FAULTS) as SetFault[]
/** Nothing of the first write is left when it is read back. */
const leavesNothing = (fault: SetFault) => !SET_FAULTS[fault].executes || 'isUndone' in SET_FAULTS[fault]
const KINDS: readonly [string, EndKind][] = [
  ['again', again()],
  ['checkpoint', checkpoint],
  ['wait', wait()],
  ['move', moveTo('Next')],
]
const isWrite = ({ name }: Command) => name === 'update' || name === 'findAndModify'
const isReadBack = ({ name }: Command) => name === 'find' || name === 'aggregate'
const isEnd = ({ name, body }: Command) => name === 'update' && /"outcome":/.test(JSON.stringify(body))

/**
 * Each kind of write meets each fault, and the database afterwards has what its verdict says.
 * @param elects another member is elected with the fault
 */
export const describeVerdicts = (elects: boolean) =>
  describe(`beside members of a replica set that answer as around an election${elects ? ', with another primary from then on' : ''}`, () => {
    const database = useDatabase()
    let set: ReplicaSetProxy
    let client: MongoClient
    /** As a replica works on it; everything else goes to the server directly. */
    let through: Collection
    let collection: Collection
    const errors: unknown[] = []

    beforeEach(async () => {
      collection = await lockedCollection(database.db)
      set = await ReplicaSetProxy.start(database.uri)
      client = await protocolClient(set.uri, protocolClientOptions(LOCK_TIMEOUT_MS)).connect()
      through = protocolCollection(client.db(database.db.databaseName), collection.collectionName)
      errors.length = 0
    })
    afterEach(async () => {
      await client.close()
      await set.stop()
    })

    async function leases(...ids: string[]): Promise<Lease[]> {
      await put(collection, ...ids.map((_id) => ({ _id, phase: PHASE })))
      const { claims } = await claimer(collection)
      return (await claims.claimBatch(PHASE, ids.length)).claimed.map(({ lease }) => lease)
    }
    async function record(ends: StepEnd[], more = {}): Promise<Verdict[]> {
      const verdicts = await writer(through, { onRetry: (error) => errors.push(error), ...more }).write(ends)
      return ends.map((end) => verdicts.get(end)!)
    }
    const outcomes = async (id = 'a'): Promise<Document[]> => (await read(collection, id))['progress'].history ?? []
    /** The lease has passed, and another replica has claimed the document. */
    async function taken(): Promise<Document> {
      await collection.updateMany({}, [{ $set: { lockedAt: ago(LOCK_TIMEOUT_MS + 1_000), phase: PHASE } }])
      await claimed(collection, await claimer(collection, { name: 'other' }))
      return read(collection, 'a')
    }

    describe.each(FAULTS)('%s', (fault) => {
      test.each(KINDS)('%s: recorded, once', async (_kind, kind) => {
        const [lease] = await leases('a')
        const struck = set.fault(isEnd, fault, { elects })
        expect(await record([endOf(lease!, kind, { set: { n: 1 } })])).toEqual([{ kind: 'recorded' }])
        await struck
        expect(await outcomes()).toHaveLength(1)
        const document = await read(collection, 'a')
        expect(document).toMatchObject({ n: 1 })
        if (kind.kind === 'again' || kind.kind === 'checkpoint')
          expect(document).toMatchObject({ lockedBy: lease!.token, fence: lease!.fence })
        else expect(document).not.toHaveProperty('lockedBy')
      })

      test('several in one command, of which one is not ours any more: that one moved on, the others recorded once', async () => {
        const ours = await leases('a', 'b', 'c')
        await collection.updateOne({ _id: 'b' as never }, { $set: { lockedBy: 'other~1#1.1' } })
        void set.fault(isEnd, fault, { elects })
        const verdicts = await record(ours.map((lease) => endOf(lease, moveTo('Next'))))
        const byId = Object.fromEntries(ours.map(({ id }, i) => [String(id), verdicts[i]]))
        expect(byId).toEqual({ a: { kind: 'recorded' }, b: { kind: 'movedOn' }, c: { kind: 'recorded' } })
        expect([(await outcomes('a')).length, (await outcomes('b')).length, (await outcomes('c')).length]).toEqual([
          1, 0, 1,
        ])
      })

      test('its document is taken before the write: moved on, never recorded, and the other has it', async () => {
        const [lease] = await leases('a')
        let other: Document = {}
        void set.fault(isEnd, fault, { elects, before: async () => (other = await taken()) })
        expect(await record([endOf(lease!, moveTo('Next'))])).toEqual([{ kind: 'movedOn' }])
        expect(await read(collection, 'a')).toEqual(other)
        expect(lease!.leftMs()).toBe(0)
      })

      test('refused because of its document: rejected, the lease stands, nothing is written', async () => {
        const [lease] = await leases('a')
        await collection.createIndex({ unique: 1 }, { unique: true, sparse: true })
        await collection.insertOne({ _id: 'taken' as never, unique: 1 })
        const { token } = lease!
        const before = await read(collection, 'a')
        void set.fault(isEnd, fault, { elects })
        expect(await record([endOf(lease!, moveTo('Next'), { set: { unique: 1 } })])).toMatchObject([
          { kind: 'rejected', error: { code: 11000 } },
        ])
        expect(await read(collection, 'a')).toEqual(before)
        expect(lease!.token).toBe(token)
        expect(lease!.leftMs()).toBeGreaterThan(0)
      })

      test('again and again, while its lease is renewed: given up where nothing is left of it, recorded otherwise', async () => {
        const clock = new ShiftedClock()
        await put(collection, { _id: 'a', phase: PHASE })
        const { lease } = await claimed(collection, await claimer(collection, { clock }))
        void set.fault(isEnd, fault, { times: Number.POSITIVE_INFINITY })
        const recording = record([endOf(lease, moveTo('Next'))], { clock })
        if (leavesNothing(fault)) {
          await eventually(() => errors.length >= 5)
          clock.advance(15_000)
          lease.renewed(clock.monotonicMs(), LOCK_TIMEOUT_MS)
        }
        expect(await recording).toMatchObject([{ kind: leavesNothing(fault) ? 'givenUp' : 'recorded' }])
        await set.elect()
        expect(await outcomes()).toHaveLength(leavesNothing(fault) ? 0 : 1)
      })

      test.each([1, 3])('a claim of %d: it believes in what the majority has, no more and no less', async (count) => {
        await put(collection, ...Array.from({ length: count }, (_, i) => ({ _id: `d${i}`, phase: PHASE })))
        const ours = await claimer(through)
        const struck = set.fault(isWrite, fault, { elects, times: count === 1 ? 2 : 1 })
        const won = await ours.claims.claimBatch(PHASE, count).then(
          ({ claimed }) => claimed.map(({ lease }) => lease),
          () => [],
        )
        if (count > 1) await struck
        await set.elect()
        const stored = await collection.find({ lockedBy: { $exists: true } }).toArray()
        expect(won.map(({ id, token }) => [id, token]).sort()).toEqual(
          stored.map((one) => [one['_id'], one['lockedBy']]).sort(),
        )
        if (leavesNothing(fault) && count > 1) expect(won).toEqual([])
      })

      test('a renewal: it fails or renews, but no lease is taken for lost, nor for longer than the majority has it', async () => {
        const ours = await leases('a', 'b')
        await collection.updateMany({}, [{ $set: { lockedAt: ago(20_000) } }])
        const renewals = new Renewals(through, () => TERMS, systemClock)
        void set.fault(isWrite, fault, { elects })
        const first = await renewals.renew(ours).catch(() => 'failed')
        if (first !== 'failed') expect(first).toEqual([])
        await set.elect()
        const isFresh = async () =>
          (await read(collection, 'a'))['lockedAt'].getTime() > (await serverNow(collection)).getTime() - 19_000
        if (first !== 'failed') expect(await isFresh()).toBe(true)
        // The next round, by which the driver knows the new primary.
        await eventually(async () => expect(await renewals.renew(ours)).toEqual([]))
        expect(await isFresh()).toBe(true)
        for (const lease of ours) expect(lease.leftMs()).toBeGreaterThan(0)
      })
    })

    test.each([
      ['notPrimaryNoSecondaryOk', 'replyLost'],
      ['notPrimary', 'replyLost'],
      ['notPrimaryNoSecondaryOk', 'neverArrived'],
    ] as const)('the read-back is answered %s, after an end with %s: recorded, once', async (answer, lost) => {
      const [lease] = await leases('a')
      // The driver sends each command again, once.
      void set.fault(isEnd, lost, { times: 2 })
      const struck = set.fault(isReadBack, answer, { elects, times: 2 })
      expect(await record([endOf(lease!, moveTo('Next'))])).toEqual([{ kind: 'recorded' }])
      const { readConcern } = await struck
      expect(readConcern).toEqual({ level: 'majority' })
      expect(await outcomes()).toHaveLength(1)
    })

    test('without a fault a document that was taken is lost, not moved on', async () => {
      const [lease] = await leases('a')
      const other = await taken()
      expect(await record([endOf(lease!, moveTo('Next'))])).toEqual([{ kind: 'lost' }])
      expect(await read(collection, 'a')).toEqual(other)
    })

    test('what an undone write shows: recorded by the primary alone, to be sent again by the majority', async () => {
      const [lease] = await leases('a')
      const { token } = lease!
      let local: Document | null = null
      void set.fault(isEnd, 'undoneReplyLost')
      // The first thing that is read after it.
      const looked = eventually(
        async () => {
          local = await through.findOne({ _id: 'a' as never }, { readConcern: { level: 'local' } })
          return traceOf(local ?? undefined, TERMS, { token, nextToken: null }) === 'written'
        },
        { everyMs: 1 },
      )
      await expect(
        through.updateMany({ _id: 'a' as never, lockedBy: token }, [
          { $set: { progress: { endedBy: token, history: [{ outcome: 'moveTo' }] } } },
          { $unset: 'lockedBy' },
        ]),
      ).rejects.toThrow()
      await looked
      const byMajority = await through.findOne({ _id: 'a' as never }, { readConcern: { level: 'majority' } })
      expect(traceOf(byMajority ?? undefined, TERMS, { token, nextToken: null })).toBe('notWritten')
      expect(await read(collection, 'a')).toMatchObject({ lockedBy: token })
    })

    test('each command passes on the latest cluster time, to the new primary too', async () => {
      const [lease] = await leases('a')
      void set.fault(isEnd, 'notPrimary', { elects: true })
      await record([endOf(lease!, moveTo('Next'))])
      const members = new Set(set.seen.map(({ member }) => member))
      expect(members.size).toBe(2)
      const times = set.seen.flatMap(({ body }) => body['$clusterTime']?.clusterTime ?? [])
      expect(times.length).toBeGreaterThan(1)
      for (const [i, time] of times.entries()) if (i > 0) expect(time.lessThan(times[i - 1])).toBe(false)
      expect(set.gossiped).toEqual(times.at(-1))
    })
  })
