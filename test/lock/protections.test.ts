import { afterEach, describe, expect, test } from '@jest/globals'
import { type Collection, Double, Int32, Long, type MongoClient } from 'mongodb'
import { type Breakable, type Rewrite, withoutProtection } from '../../chaos/broken/rewrites.ts'
import { NoProxy, throughProxy } from '../../chaos/broken/through-proxy.ts'
import { Renewals } from '../../src/lock/index.js'
import { systemClock } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import {
  again,
  ago,
  claimed,
  claimer,
  clientAt,
  endOf,
  interrupted,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  moveTo,
  PHASE,
  put,
  read,
  TERMS,
  writer,
} from './fixture.js'

/**
 * The rewriting that `npm run chaos -- --break` does, on one document: the protection is there, and it is gone once the commands are
 * rewritten. A command whose shape changes, so that the rewriting misses it, fails here within seconds.
 */
describe('a proxy takes one protection out of the commands that the product sends', () => {
  const database = useDatabase()
  const atEnd: (() => Promise<unknown>)[] = []
  afterEach(async () => {
    for (const close of atEnd.splice(0).reverse()) await close()
  })

  async function through(rewrite: Rewrite): Promise<MongoClient> {
    const { uri, proxy } = await throughProxy(database.uri, rewrite)
    atEnd.push(() => proxy.close())
    const client = await clientAt(uri, { retryWrites: false })
    atEnd.push(() => client.close())
    return client
  }
  /** The collection, through a proxy if a protection is broken. The replica's clock, which only `client-clock` uses, is two lock timeouts ahead. */
  async function reached(collection: Collection, broken?: Breakable): Promise<Collection> {
    if (!broken) return collection
    const now = () => new Date(systemClock.now().getTime() + 2 * LOCK_TIMEOUT_MS)
    const client = await through(withoutProtection(broken, now))
    return client.db(database.db.databaseName).collection(collection.collectionName)
  }
  const expire = (collection: Collection) =>
    collection.updateMany({}, [{ $set: { lockedAt: ago(LOCK_TIMEOUT_MS + 1_000) } }])
  const documents = (...ids: string[]) => ids.map((_id) => ({ _id, phase: PHASE }))

  describe('unlock-by-id: the token in what a holder writes', () => {
    async function phaseAfterLateWrite(broken?: Breakable): Promise<string> {
      const collection = await lockedCollection(database.db)
      await put(collection, ...documents('a'))
      const late = await claimed(collection)
      await expire(collection)
      const next = await claimed(collection)
      await writer(collection).write([endOf(next.lease, moveTo('Next'))])
      await writer(await reached(collection, broken)).write([endOf(late.lease, moveTo('Late'))])
      return (await read(collection, 'a'))['phase']
    }
    test('there', async () => {
      expect(await phaseAfterLateWrite()).toBe('Next')
    })
    test('gone', async () => {
      expect(await phaseAfterLateWrite('unlock-by-id')).toBe('Late')
    })
  })

  describe("client-clock: the server's time in a claim", () => {
    async function claimsWhatIsHeld(broken?: Breakable): Promise<boolean> {
      const collection = await lockedCollection(database.db)
      await put(collection, ...documents('a'))
      await claimed(collection)
      const { claims } = await claimer(await reached(collection, broken), { name: 'ahead' })
      return (await claims.claimBatch(PHASE, 2)).claimed.length > 0
    }
    test('there', async () => {
      expect(await claimsWhatIsHeld()).toBe(false)
    })
    test('gone', async () => {
      expect(await claimsWhatIsHeld('client-clock')).toBe(true)
    })
  })

  describe('no-renew: the renewals', () => {
    async function renewed(broken?: Breakable): Promise<{ believed: boolean; stored: boolean }> {
      const collection = await lockedCollection(database.db)
      await put(collection, ...documents('a', 'b', 'c'))
      const { claims } = await claimer(collection)
      const won = [...(await claims.claimBatch(PHASE, 2)).claimed, ...(await claims.claimBatch(PHASE, 1)).claimed]
      expect(won).toHaveLength(3)
      await collection.updateMany({}, [{ $set: { lockedAt: ago(20_000) } }])
      const before = (await read(collection, 'a'))['lockedAt']
      const renewals = new Renewals(await reached(collection, broken), () => TERMS, systemClock)
      const lost = await renewals.renew(won.map(({ lease }) => lease))
      return { believed: lost.length === 0, stored: (await read(collection, 'a'))['lockedAt'] > before }
    }
    test('there', async () => {
      expect(await renewed()).toEqual({ believed: true, stored: true })
    })
    test('gone', async () => {
      expect(await renewed('no-renew')).toEqual({ believed: true, stored: false })
    })
  })

  describe('no-token: the token by which a holder is known', () => {
    /** A claim names three documents; another replica takes the first of them just before it. */
    async function believesInItsClaim(broken?: Breakable): Promise<string[]> {
      const collection = await lockedCollection(database.db)
      await put(collection, ...documents('a', 'b', 'c'))
      const before = () =>
        collection.updateOne({ _id: 'a' as never }, [
          { $set: { lockedAt: '$$NOW', lockedBy: 'other~0#1.1', fence: 5, 'progress.claims': 1 } },
        ])
      const overtaken = interrupted(await reached(collection, broken), 'updateMany', { before })
      const { claims } = await claimer(overtaken, { name: 'late' })
      return (await claims.claimBatch(PHASE, 3)).claimed.map(({ lease }) => String(lease.id)).sort()
    }
    test('there: what another one has taken in between is not won', async () => {
      expect(await believesInItsClaim()).toEqual(['b', 'c'])
    })
    test('gone: all of it is', async () => {
      expect(await believesInItsClaim('no-token')).toEqual(['a', 'b', 'c'])
    })

    async function phaseAfterLateWrite(broken?: Breakable): Promise<string> {
      const collection = await lockedCollection(database.db)
      await put(collection, ...documents('a'))
      const late = await claimed(collection)
      await expire(collection)
      const next = await claimed(collection)
      await writer(collection).write([endOf(next.lease, again())])
      await writer(await reached(collection, broken)).write([endOf(late.lease, moveTo('Late'))])
      return (await read(collection, 'a'))['phase']
    }
    test("there: a late write finds another holder's token", async () => {
      expect(await phaseAfterLateWrite()).toBe(PHASE)
    })
    test('gone: it matches what anybody holds', async () => {
      expect(await phaseAfterLateWrite('no-token')).toBe('Late')
    })
  })

  test('what is sent on rewritten keeps the types of all its values', async () => {
    const values = {
      long: Long.fromString('9007199254740993'),
      int: new Int32(5),
      double: new Double(5),
      date: new Date(5),
      list: [new Int32(1), { text: '$$NOWHERE', nothing: null }],
    }
    const client = await through((command) => ({ command, reply: (reply) => reply }))
    const things = client.db(database.db.databaseName).collection('Values')
    await things.insertOne({ _id: 'a' as never })
    await things.updateOne({ _id: 'a' as never }, [{ $set: { values: { $literal: values } } }])
    const raw = { promoteValues: false } as const
    const direct = await database.db.collection('Values').findOne({ _id: 'a' as never }, raw)
    expect(direct?.['values']).toEqual(values)
    expect(await things.findOne({ _id: 'a' as never }, raw)).toEqual(direct)
  })

  test.each([
    'mongodb+srv://cluster.example/',
    'mongodb://a:27017,b:27017/',
    'mongodb://user:secret@a/?tls=true',
    'mongodb://user:secret@%2Ftmp%2Fmongodb.sock/',
  ])('a proxy before %s is refused, without the password', async (uri) => {
    const error = await throughProxy(uri, () => undefined).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(NoProxy)
    expect((error as Error).message).not.toContain('secret')
  })
})
