import { describe, expect, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { InvalidDocument, Limits, lifecycleOf, NotAttached, OwnerClient, Replica } from '../../src/index.js'
import { InvalidOptions } from '../../src/options/index.js'
import type { OwnerOptions } from '../../src/phases/owner/owner-types.js'
import { testServerUri, useDatabase } from '../support/database.js'

interface Parcel {
  _id: string
  state?: 'Wanted' | 'Returned'
  weight: number
}

const parcel = lifecycleOf<Parcel>().define({
  name: 'parcel',
  collection: 'Parcel',
  phases: {
    Packing: { next: ['Sent', 'Sent'], entry: true },
    Sorting: { next: ['Sent'], entry: true },
    Sent: { rest: true },
    Returning: { next: ['Gone'] },
    Gone: { final: true },
  },
  rules: [{ when: 'Returned', from: 'any', moveTo: 'Returning' }],
})

const bind = () =>
  parcel.handle({
    async Packing(doc, step) {
      if (doc.weight > 100 && step.progress.history === undefined) return step.park('too heavy')
      if (doc.weight > 50) return step.wait('a bigger van', { for: '1h' })
      return step.moveTo('Sent')
    },
    Sorting: async (_doc, step) => step.moveTo('Sent'),
    Returning: async (_doc, step) => step.moveTo('Gone'),
  })

test.each<[string, () => unknown, string]>([
  [
    'no database',
    () => bind().attach(undefined as never),
    "db: expected a database from the driver (client.db('shop')), got undefined",
  ],
  [
    'a definition',
    () => new OwnerClient({ collection() {} } as never, parcel as never),
    "model: expected a lifecycle's model (`lifecycle.model`), got an object with name",
  ],
])('an owner of %s is refused', (_name, make, problem) => {
  expect(make).toThrow(expect.objectContaining({ name: 'InvalidOptions' }))
  expect(make).toThrow(`an OwnerClient: ${problem}`)
})

describe("an owner's calls, typed by the lifecycle", () => {
  const database = useDatabase()

  test.each([
    [{ lockedAt: 5 }, 'parcel: expected lockedAt to be a date, or left out, got 5'],
    [{ progress: 5 }, "parcel: expected 'progress' to be an object, or left out, got 5"],
    [{ progress: [] }, "parcel: expected 'progress' to be an object, or left out, got an Array"],
  ])('an insert with %j is refused: it would be put aside', async (odd, problem) => {
    const parcels = bind().attach(database.db)
    const document = { _id: 'a', weight: 1, ...odd } as never
    const refused = expect.objectContaining({ name: 'InvalidDocument', message: expect.stringContaining(problem) })
    await expect(parcels.insert(document)).rejects.toThrow(refused)
    await expect(parcels.insertMany([document])).rejects.toThrow(refused)
    expect(await database.db.collection('Parcel').countDocuments()).toBe(0)
  })

  test('a state that no rule names is refused, unless it is for handlers to read', async () => {
    const parcels = bind().attach(database.db)
    await parcels.insert({ _id: 'a', weight: 1 })
    const typo = parcels.setState('a', 'Returnd' as never)
    await expect(typo).rejects.toThrow(
      'expected a state that a rule of parcel names (Returned), got "Returnd"; did you mean \'Returned\'?; { force: true } stores it anyway',
    )
    await expect(typo).rejects.toMatchObject({ name: 'UnknownState', state: 'Returnd', known: ['Returned'] })
    expect(await parcels.find('a')).not.toHaveProperty('state')
    expect(await parcels.setState('a', 'Wanted', { force: true })).toBe('done')
    expect(await parcels.find('a')).toMatchObject({ state: 'Wanted' })
  })

  test('what exists is not inserted: an error with what was stored before it', async () => {
    const parcels = bind().attach(database.db)
    await parcels.insert({ _id: 'b', weight: 1 })
    const again = parcels.insert({ _id: 'b', weight: 2 })
    await expect(again).rejects.toThrow('parcel b was not inserted: it exists already')
    await expect(again).rejects.toMatchObject({
      name: 'DocumentExists',
      id: 'b',
      index: '_id_',
      inserted: 0,
      code: 11000,
    })
    const several = ['a', 'b', 'c'].map((_id) => ({ _id, weight: 3 }))
    await expect(parcels.insertMany(several)).rejects.toMatchObject({
      id: 'b',
      inserted: 1,
      message: 'parcel b was not inserted: it exists already; the 1 before it are stored',
    })
    expect(await database.db.collection('Parcel').countDocuments()).toBe(2)
    expect(await parcels.find('b')).toMatchObject({ weight: 1 })
    await database.db.collection('Parcel').createIndex({ weight: 1 }, { unique: true })
    await expect(parcels.insert({ _id: 'd', weight: 1 })).rejects.toThrow(
      /^parcel d was not inserted: the unique index weight_1 has its key already \(\{ weight: 1 \}\)$/,
    )
  })
  const running = () => {
    const parcels = bind()
    return { parcels, replica: new Replica({ db: database.db, lifecycles: [parcels] }) }
  }

  test('insert puts a document into the first entry phase or the one that it names, and returns its id', async () => {
    const { parcels } = running()
    expect(await parcels.insert({ _id: 'a', weight: 1 })).toBe('a')
    expect(await parcels.insertMany([{ _id: 'b', weight: 1, phase: 'Sorting' }])).toEqual(['b'])
    expect((await parcels.find('a'))?.phase).toBe('Packing')
    expect(await parcels.find('b')).toEqual({ _id: 'b', phase: 'Sorting', weight: 1, createdAt: expect.any(Date) })
    expect(await parcels.find('c')).toBeNull()
  })

  test('an unknown phase is refused, and none of many is inserted', async () => {
    const { parcels } = running()
    const wrong = { _id: 'b', weight: 1, phase: 'Pakcing' as 'Packing' }
    await expect(parcels.insertMany([{ _id: 'a', weight: 1 }, wrong])).rejects.toBeInstanceOf(InvalidDocument)
    expect(await parcels.owner().documents.countDocuments()).toBe(0)
  })

  test('setState says what the owner wants; a rule moves the document', async () => {
    const { parcels, replica } = running()
    await parcels.insert({ _id: 'a', weight: 1 })
    expect(await parcels.setState('a', 'Returned')).toBe('done')
    expect(await parcels.setState('a', 'Returned')).toBe('unchanged')
    expect(await parcels.setState('b', 'Returned')).toBe('notFound')
    await replica.runOnce()
    expect(await parcels.find('a')).toBeNull()
  })

  test('wake ends a sleep, but not that of a held or a parked document', async () => {
    const { parcels, replica } = running()
    await parcels.insertMany([
      { _id: 'asleep', weight: 60 },
      { _id: 'parked', weight: 101 },
    ])
    await replica.runOnce()
    expect((await parcels.find('asleep'))?.progress?.waitingFor).toBe('a bigger van')
    expect(await parcels.wake('asleep')).toBe('done')
    expect((await parcels.find('asleep'))?.lockedAt).toEqual(new Date(0))
    expect(await parcels.wake('parked')).toBe('parked')
    expect(await parcels.wake('nobody')).toBe('notFound')
    await parcels.owner().documents.updateOne({ _id: 'asleep' as never }, { $set: { lockedBy: 'r~1#1.1' } })
    expect(await parcels.wake('asleep')).toBe('held')
  })

  test('unpark gives a parked document another go, and the history says who did it', async () => {
    const { parcels, replica } = running()
    await parcels.insertMany([
      { _id: 'parked', weight: 101 },
      { _id: 'free', weight: 1 },
    ])
    expect(await parcels.unpark('free')).toBe('notParked')
    await replica.runOnce()
    expect(await parcels.unpark('parked', { by: 'anna' })).toBe('done')
    const { progress } = (await parcels.find('parked'))!
    expect(progress?.history?.at(-1)).toMatchObject({ outcome: 'owner', reason: 'unparked', by: 'anna' })
    expect(progress).toMatchObject({ attempts: 0, claims: 0 })
  })

  test('remove deletes a document outright', async () => {
    const { parcels } = running()
    await parcels.insert({ _id: 'a', weight: 1 })
    expect(await parcels.remove('a')).toBe('done')
    expect(await parcels.remove('a')).toBe('notFound')
  })

  test('without a replica an owner of its own does the same', async () => {
    const parcels = bind()
    expect(() => parcels.insert({ _id: 'a', weight: 1 })).toThrow(NotAttached)
    const owner = new OwnerClient(database.db, parcel.model)
    await owner.insert({ _id: 'a' })
    expect((await parcels.attach(database.db).find('a'))?.phase).toBe('Packing')
  })
})

const OTHER_CLIENT = /must be from the same MongoClient/

/** The embedded engine and a standalone server have no transactions; MONGODB_URI may name a replica set. */
async function hasTransactions(): Promise<boolean> {
  if (!process.env['MONGODB_URI']) return false
  const client = await new MongoClient(testServerUri()).connect()
  try {
    return (await client.db('admin').command({ hello: 1 }))['setName'] !== undefined
  } finally {
    await client.close()
  }
}
const transactions = await hasTransactions()

describe("an owner's calls in the caller's transaction", () => {
  const database = useDatabase()
  const calls: [string, (options: OwnerOptions) => Promise<unknown>][] = []
  const parcels = bind()
  const call = (name: string, make: (options: OwnerOptions) => Promise<unknown>) => calls.push([name, make])
  call('insert', (options) => parcels.insert({ _id: 'x', weight: 1 }, options))
  call('insertMany', (options) => parcels.insertMany([{ _id: 'x', weight: 1 }], options))
  call('find', (options) => parcels.find('a', options))
  call('setState', (options) => parcels.setState('a', 'Returned', options))
  call('wake', (options) => parcels.wake('a', options))
  call('unpark', (options) => parcels.unpark('a', options))
  call('remove', (options) => parcels.remove('a', options))

  test.each(calls)(
    '%s hands the session to the driver, which refuses one that has ended or is of another client',
    async (_name, run) => {
      parcels.attach(database.db)
      await parcels.insert({ _id: 'a', weight: 1 })
      const session = database.client.startSession()
      await session.endSession()
      await expect(run({ session })).rejects.toThrow(/expired sessions/)
      const other = await new MongoClient(database.uri).connect()
      try {
        await expect(run({ session: other.startSession() })).rejects.toThrow(OTHER_CLIENT)
      } finally {
        await other.close()
      }
      expect(await parcels.find('a')).toEqual({ _id: 'a', phase: 'Packing', weight: 1, createdAt: expect.any(Date) })
    },
  )

  test('a replica leaves the owner the client that it was given for it, and works over its own', async () => {
    const own = await new MongoClient(database.uri).connect()
    try {
      const replica = new Replica({
        db: own.db(database.db.databaseName),
        ownerDb: database.db,
        lifecycles: [parcels],
      })
      const session = database.client.startSession()
      // Of the right client: it gets past the driver's check of that, to the server or its lack of sessions.
      const failed = await parcels.insert({ _id: 'a', weight: 1 }, { session }).catch((error) => error)
      expect(String(failed)).not.toMatch(OTHER_CLIENT)
      await session.endSession()
      if (failed !== 'a') await parcels.insert({ _id: 'a', weight: 1 })
      await replica.runOnce()
      expect((await parcels.find('a'))?.phase).toBe('Sent')
    } finally {
      await own.close()
    }
  })

  test.each([undefined, { $gt: '' }, /b/, ['b'], () => 'b'])(
    'an _id of %p is refused: it would mean some other document',
    async (id) => {
      const client = await new MongoClient(testServerUri(), { ignoreUndefined: true }).connect()
      const owner = new OwnerClient(client.db(database.db.databaseName), parcel.model)
      try {
        await owner.insert({ _id: 'b', weight: 1 })
        const options = { by: 'ana' }
        const calls = [
          ...[owner.remove(id), owner.wake(id), owner.unpark(id), owner.setState(id, 'Returned'), owner.find(id)],
          ...[owner.cancel(id, options), owner.answer(id, { ...options, option: 'yes' })],
          ...(id === undefined ? [] : [owner.pause({ ...options, id }), owner.resume({ id })]),
        ]
        for (const call of await Promise.allSettled(calls))
          expect(call).toMatchObject({
            reason: { message: expect.stringContaining('expected an _id that a document can') },
          })
        expect(await owner.find('b')).toEqual({ _id: 'b', phase: 'Packing', weight: 1, createdAt: expect.any(Date) })
      } finally {
        await client.close()
      }
    },
  )

  test('what is no call is refused in words, and changes nothing', async () => {
    const owner = new OwnerClient(database.db, parcel.model)
    const told = async (call: () => Promise<unknown>) => {
      const error = await call().catch((one: unknown) => one)
      return error instanceof InvalidOptions || error instanceof InvalidDocument ? error.message : error
    }
    const any = (value: unknown) => value as never
    expect(await told(() => owner.insert({ _id: 'c', weight: 1 }, { session: any({}) }))).toMatch(
      "insert: session: expected a session of the driver's (client.startSession()), got an object with nothing",
    )
    expect(await told(() => owner.insert({ _id: 'c', weight: 1 }, any(null)))).toMatch(/^insert: .*got null/)
    expect(await told(() => owner.wake('c', any(null)))).toMatch(/^wake: .*got null/)
    expect(await told(() => owner.wake('c', any({ sesion: 1 })))).toMatch("unknown option 'sesion'")
    expect(await told(() => owner.insert(any(5)))).toMatch('expected a document, an object with your fields, got 5')
    expect(await told(() => owner.insertMany(any('x')))).toMatch("insertMany: expected a list of documents, got 'x'")
    expect(await owner.insertMany([])).toEqual([])
    for (const _id of [['a'], /a/, { $x: 1 }])
      expect(await told(() => owner.insert({ _id: any(_id), weight: 1 }))).toMatch(
        'expected an _id that a document can have (neither undefined nor an array, a regular expression or an operator)',
      )
    expect(await told(() => owner.insert(any({ _id: 'c', $a: 1 }), { onDuplicate: 'ignore' }))).toMatch(
      "expected fields that don't begin with '$', got $a",
    )
    expect(await told(() => owner.unpark('c', { by: any({ $gt: '' }) }))).toMatch('unpark: by: expected a string')
    expect(
      await told(() =>
        owner.setState(
          'c',
          any(() => 1),
          { force: true },
        ),
      ),
    ).toMatch('setState: state: expected a string, got a function')
    const lost = { id: any(undefined), by: 'ana' }
    expect(await told(() => owner.pause(lost))).toMatch('pause: id: expected a value, or to be left out')
    expect(await told(() => owner.resume({ phase: any(undefined) }))).toMatch('resume: phase: expected a value')
    expect(await told(() => new Limits(database.db).remove(any({ $gt: '' })))).toMatch('limits.remove: name: expected')
    expect(await owner.documents.countDocuments()).toBe(0)
  })

  // Each kind of server has its own promise to keep; neither test stands in for the other.
  if (transactions) {
    test('what is inserted in a transaction that aborts was never there; in one that commits, all of it is', async () => {
      parcels.attach(database.db)
      await database.db.createCollection('Parcel')
      await database.db.createCollection('Invoice')
      const session = database.client.startSession()
      const inserted = (id: string) => async () => {
        await database.db.collection<{ _id: string }>('Invoice').insertOne({ _id: id }, { session })
        await parcels.insert({ _id: id, weight: 1 }, { session })
        await parcels.setState(id, 'Wanted', { session, force: true })
        if (id === 'aborted') throw new Error('no')
      }
      await expect(session.withTransaction(inserted('aborted'))).rejects.toThrow('no')
      expect(await parcels.find('aborted')).toBeNull()
      await session.withTransaction(inserted('done'))
      await session.endSession()
      expect(await parcels.find('done')).toMatchObject({ phase: 'Packing', state: 'Wanted' })
    })
  } else {
    test('on a server without transactions an insert in one is refused and nothing is inserted (a replica set in MONGODB_URI tests the rest)', async () => {
      parcels.attach(database.db)
      const session = database.client.startSession()
      const run = session.withTransaction(async () => void (await parcels.insert({ _id: 'x', weight: 1 }, { session })))
      await expect(run).rejects.toThrow()
      await session.endSession()
      expect(await parcels.find('x')).toBeNull()
    })
  }
})
