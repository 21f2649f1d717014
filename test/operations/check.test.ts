import { describe, expect, jest, test } from '@jest/globals'
import { BSON, type Document, MongoClient } from 'mongodb'
import { CLAIM_INDEX, LIFECYCLES_COLLECTION, multikeyFields, STAND_IN_INDEX } from '../../src/lock/index.js'
import {
  type CheckResult,
  checkDatabase,
  clockFindings,
  type Finding,
  showDocument,
  wakeDocument,
} from '../../src/operations/index.js'
import { clientAt, serverNow } from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { recordingLogger, recordingObserver, replicaOf, thing, things, thingWith } from '../support/thing.js'

jest.setTimeout(240_000)

describe('phaselock check', () => {
  const database = useDatabase()
  const documents = () => database.db.collection<Document & { _id: string }>('Thing')
  const check = (repair = false) => checkDatabase({ db: database.db, models: [thing.model], repair })
  const findingsOf = (results: CheckResult[], name?: string): Finding[] =>
    results.filter((one) => name === undefined || one.check === name).flatMap((one) => one.findings)
  const looked = async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await replica.prepare()
    await replica.tick()
    await replica.idle()
    return replica
  }
  const indexKeys = async () => (await documents().indexes()).map(({ key }) => JSON.stringify(key))

  test('an empty database, and one in order, have no findings; nothing is changed', async () => {
    expect(findingsOf(await check())).toEqual([])
    await documents().insertMany([
      { _id: 'free', phase: 'Creating' },
      { _id: 'null', phase: 'Created', lockedAt: null, updatedAt: null, progress: null },
      { _id: '2200', phase: 'Created', lockedAt: new Date('2200-01-01') },
    ])
    await looked()
    const before = await documents().find().toArray()
    const results = await check()
    expect(findingsOf(results)).toEqual([])
    expect(results.map(({ check: name, said }) => `${name}: ${said}`)).toEqual([
      'lifecycles: 1 registered',
      'indexes: 2 on each of 1 collections',
      'never due: none is hidden from claims',
      'leases: none begins in the future',
      'limits: 0 named by lifecycles',
      'multikey: no claim index is multikey',
      expect.stringMatching(/^query plans: \d+ claims and looks explained$/),
      'shapes: 1 collections read',
      'phases: all are known',
      expect.stringMatching(/^clocks: /),
    ])
    expect(await documents().find().toArray()).toEqual(before)
  })

  test('a step of the server’s clock that replicas hold back for is told, until it counts', async () => {
    await looked()
    const lifecycles = database.db.collection(LIFECYCLES_COLLECTION)
    const now = await serverNow(lifecycles)
    const at = new Date(now.getTime() - 5_000)
    const stored = (clockStep: unknown) => lifecycles.updateMany({}, { $set: { clockStep } })
    await stored({ at, ms: 600_000, until: new Date(now.getTime() + 600_000) })
    expect(findingsOf(await check(), 'clocks')).toEqual([
      {
        about: "the server's clock",
        problem: expect.stringMatching(
          /^it stepped forward by 10 min at .*: deadlines, removals and leases that end by it wait for another 9 min/,
        ),
        advice: expect.stringContaining('correct it before then'),
        repair: 'none',
      },
    ])
    for (const past of [{ at, ms: 600_000, until: new Date(now.getTime() - 1) }, { at: 'x', ms: 1, until: 5 }, 'x']) {
      await stored(past)
      expect(findingsOf(await check(), 'clocks')).toEqual([])
    }
  })

  test('an index that is missing is found, and created; one of another kind is only found', async () => {
    await looked()
    await documents().dropIndex('phase_1_lockedAt_1_updatedAt_1')
    await documents().dropIndex('state_1_phase_1')
    await documents().createIndex({ state: 1, phase: 1 }, { sparse: true })
    const found = await check()
    expect(findingsOf(found, 'indexes')).toEqual([
      {
        about: `index ${JSON.stringify(CLAIM_INDEX)} of Thing`,
        problem: 'it is missing',
        advice: expect.stringContaining('createIndex'),
        repair: 'possible',
      },
      {
        about: 'index {"state":1,"phase":1} of Thing',
        problem: 'it is of another kind (sparse)',
        advice: expect.stringContaining('dropIndex'),
        repair: 'none',
      },
    ])
    expect(findingsOf(found, 'query plans').length).toBeGreaterThan(0)
    const repaired = await check(true)
    expect(findingsOf(repaired, 'indexes').map(({ repair }) => repair)).toEqual(['done', 'none'])
    expect(await indexKeys()).toContain(JSON.stringify(CLAIM_INDEX))
  })

  test('documents of a broken shape: each field and type with how many, which, and what becomes of it', async () => {
    await looked()
    await documents().insertMany([
      { _id: 'a', phase: 'Created', lockedAt: 'soon', updatedAt: 'x' },
      ...['b', 'c', 'd', 'e'].map((_id) => ({ _id, phase: 'Created', updatedAt: [new Date()] })),
      { _id: 'f', phase: 'Created', progress: 'mine', fence: 'x', createdAt: 7, lockedBy: 7 },
      { _id: 'g', phase: 7 },
      { _id: 'h' },
      { _id: 'i', phase: ['Created'] },
    ])
    const found = findingsOf(await check(), 'shapes')
    expect(found.map(({ problem }) => problem)).toEqual([
      '1 document with createdAt of type int (f)',
      '1 document with fence of type string (f)',
      '1 document with lockedAt of type string (a)',
      '1 document with lockedBy of type int (f)',
      '1 document with phase of type array (i)',
      '1 document with phase of type int (g)',
      '1 document with phase of type missing (h)',
      '1 document with progress of type string (f)',
      '4 documents with updatedAt of type array (b, c, d, ...)',
      '1 document with updatedAt of type string (a)',
    ])
    for (const { advice, repair } of found) {
      expect(advice).not.toBe('')
      expect(repair).toBe('none')
    }
  })

  test('a document that waits for an answer to a question that was damaged is named, with what helps', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.ask({ question: 'Ship it?' })),
    )
    await replica.prepare()
    await documents().insertMany(['sound', 'it is damaged', 'due'].map((_id) => ({ _id, phase: 'Creating' })))
    await replica.runOnce()
    const system = { db: database.db, models: [thing.model] }
    const about = async (_id: string) => (await showDocument(system, { id: _id })).explanation
    const damage = (_id: string, set: Document) => documents().updateOne({ _id }, { $set: set })
    await damage('due', { lockedAt: new Date(0), 'progress.question': 5 })
    expect(findingsOf(await check())).toEqual([])
    for (const [set, why] of [
      [{ 'progress.question': 5 }, 'is a number'],
      [{ 'progress.question': { id: 'x', question: 'Ship it?' } }, 'lacks askedAt'],
      [
        { 'progress.question': { id: 'x', question: 'Ship it?', askedAt: new Date(1) } },
        'is from before it entered its phase',
      ],
      [{ progress: null }, 'is missing'],
    ] as const) {
      await damage('it is damaged', set)
      expect(findingsOf(await check())).toEqual([
        {
          about: 'Thing',
          problem:
            '1 document asleep until an answer comes, with a progress.question that nobody can answer (it is damaged)',
          advice: expect.stringContaining("phaselock wake 'it is damaged' runs its step"),
          repair: 'none',
        },
      ])
      expect(await about('it is damaged')).toMatch(
        new RegExp(`its 'progress.question' ${why}; phaselock wake 'it is damaged' runs its step, which asks again`),
      )
      expect(await wakeDocument(system, { id: 'it is damaged' })).toMatchObject({ woken: true })
      await replica.runOnce()
      expect(await about('it is damaged')).toMatch(/^Asks 'Ship it\?'/)
      expect(findingsOf(await check())).toEqual([])
    }
    await replica.stop()
  })

  test('documents that never come due are set free by --repair; a lease is not ended', async () => {
    await looked()
    await documents().insertMany([
      { _id: 'timestamp', phase: 'Created', lockedAt: new BSON.Timestamp({ t: 1, i: 1 }) },
      { _id: 'regex', phase: 'Creating', lockedAt: /x/ },
      { _id: 'held', phase: 'Creating', lockedAt: new BSON.MaxKey(), lockedBy: 'x~1#1.1' },
      { _id: 'late', phase: 'Created', lockedAt: new Date('9999-12-31T12:00:00Z') },
      { _id: 'fine', phase: 'Created', lockedAt: new Date('2200-01-01') },
    ])
    const before = await serverNow(database.db.collection('Thing'))
    const [found] = findingsOf(await check(), 'never due')
    expect(found).toMatchObject({ about: 'Thing', repair: 'possible' })
    expect(found!.problem).toMatch(/^4 documents with a lockedAt that never comes due/)
    expect(findingsOf(await check(true)).map(({ repair }) => repair)).toEqual(['done'])
    const at = async (id: string) => (await documents().findOne({ _id: id }))!['lockedAt'] as Date
    expect(await at('timestamp')).toEqual(new Date(0))
    expect(await at('regex')).toEqual(new Date(0))
    expect((await at('held')).getTime()).toBeGreaterThanOrEqual(before.getTime())
    expect(await documents().findOne({ _id: 'held' })).toMatchObject({ lockedBy: 'x~1#1.1' })
    expect(findingsOf(await check())).toEqual([])
  })

  test('a multikey claim index is rebuilt while a replica goes on without a pause', async () => {
    const logger = recordingLogger()
    const observer = recordingObserver()
    const ends: number[] = []
    const handler = thingWith(async (_doc, step) => {
      ends.push(performance.now())
      return step.wait('more', { for: '200ms' })
    })
    const replica = replicaOf(database.db, handler, { logger, observer })
    await documents().insertMany([
      { _id: 'array', phase: 'Created', lockedAt: [new Date(0), new Date('2200-01-01')] },
      ...Array.from({ length: 30_000 }, (_, i) => ({ _id: `rest${i}`, phase: 'Created', lockedAt: new Date(0) })),
      ...Array.from({ length: 20 }, (_, i) => ({ _id: `work${i}`, phase: 'Creating' })),
    ])
    await replica.start()
    try {
      await eventually(() => ends.length > 40, { timeoutMs: 60_000 })
      expect(await multikeyFields(database.db.collection('Thing'))).toContain('lockedAt')
      const [found] = findingsOf(await check(), 'multikey')
      expect(found).toMatchObject({ about: 'claim index of Thing', repair: 'possible' })
      const began = performance.now()
      const repaired = await check(true)
      const ended = performance.now()
      expect(findingsOf(repaired).filter(({ repair }) => repair !== 'done')).toEqual([])
      await eventually(() => ends.at(-1)! > ended + 1_000)
      const times = ends.filter((time) => time > began - 1_000)
      const longest = Math.max(...times.slice(1).map((time, i) => time - times[i]!))
      // A claim without its index is an error, which is looked for below: this shows that it went on, on a busy machine too.
      expect(longest).toBeLessThan(20_000)
    } finally {
      await replica.stop()
    }
    expect(await multikeyFields(database.db.collection('Thing'))).toEqual([])
    expect(await indexKeys()).not.toContain(JSON.stringify(STAND_IN_INDEX))
    expect(logger.lines.filter(({ level }) => level === 'error')).toEqual([])
    expect(observer.losses).toEqual([])
    expect(await things(database.db).countDocuments({ lockedAt: { $type: 'array' } as never })).toBe(0)
  })

  /** By what the checks for documents that never come due and for leases from the future read, whatever they tried first. */
  async function hintsOfCheck(): Promise<unknown[]> {
    const client = await new MongoClient(database.uri, { monitorCommands: true }).connect()
    const sent = new Map<number, unknown>()
    const hints: unknown[] = []
    client.on('commandStarted', ({ requestId, command }) => sent.set(requestId, command['hint']))
    client.on('commandSucceeded', ({ requestId, commandName, reply }) => {
      const { ns } = (reply as { cursor?: { ns: string } }).cursor ?? {}
      if (commandName === 'find' && ns?.endsWith('.Thing')) hints.push(sent.get(requestId))
    })
    try {
      await checkDatabase({ db: client.db(database.db.databaseName), models: [thing.model] })
      return hints
    } finally {
      await client.close()
    }
  }

  test('a rebuild that was interrupted is finished; claims work at each point of it', async () => {
    const replica = await looked()
    const works = async (id: string) => {
      await documents().insertOne({ _id: id, phase: 'Creating' })
      await replica.runOnce()
      expect(await documents().findOne({ _id: id })).toMatchObject({ phase: 'Created' })
    }
    await documents().createIndex(STAND_IN_INDEX)
    await works('with both')
    await documents().dropIndex('phase_1_lockedAt_1_updatedAt_1')
    await works('with the stand-in')
    expect(await hintsOfCheck()).toEqual(Array.from({ length: 6 }, () => STAND_IN_INDEX))
    const [found] = findingsOf(await check(), 'multikey')
    expect(found!.problem).toMatch(/left over from a rebuild/)
    await check(true)
    await works('with the index')
    expect(await indexKeys()).not.toContain(JSON.stringify(STAND_IN_INDEX))
    expect(findingsOf(await check())).toEqual([])
  })

  test('two rebuilds at once: claims have an index at each point, and one of the two says that the other is at it', async () => {
    await looked()
    await documents().insertOne({ _id: 'array', phase: 'Created', lockedAt: [new Date(0)] })
    await documents().deleteOne({ _id: 'array' })
    const proxy = await TcpProxy.start(database.uri)
    const client = await clientAt(proxy.uri)
    try {
      const slow = proxy.hold('dropIndexes')
      const first = checkDatabase({ db: client.db(database.db.databaseName), models: [thing.model], repair: true })
      const drop = await slow
      const second = await check(true)
      const built = proxy.hold('createIndexes')
      drop.release()
      const build = await built
      const keys = await indexKeys()
      expect([CLAIM_INDEX, STAND_IN_INDEX].filter((key) => keys.includes(JSON.stringify(key)))).not.toEqual([])
      expect(findingsOf(second, 'multikey')).toMatchObject([
        { repair: 'possible', problem: expect.stringMatching(/another process is repairing it now$/) },
      ])
      build.release()
      expect(findingsOf(await first, 'multikey')).toMatchObject([{ repair: 'done' }])
      expect(findingsOf(await check())).toEqual([])
      expect(await indexKeys()).not.toContain(JSON.stringify(STAND_IN_INDEX))
    } finally {
      await client.close()
      await proxy.stop()
    }
  })

  test('unknown phases, and lifecycles that no replica looks after', async () => {
    await looked()
    const lifecycles = database.db.collection<Document & { _id: string }>('phaselock.lifecycles')
    await documents().insertMany([
      { _id: 'a', phase: 'Creatng' },
      { _id: 'b', phase: 'Boxed' },
    ])
    await lifecycles.insertOne({ _id: 'boxes', collection: 'Thing', lockTimeout: 30_000, phases: ['Boxed'] })
    const results = await check()
    expect(findingsOf(results, 'phases')).toEqual([
      {
        about: 'Thing',
        problem: "1 document in the phase 'Creatng', which thing doesn't have",
        advice: expect.stringContaining("renamed: { Creatng: '...' }"),
        repair: 'none',
      },
    ])
    expect(findingsOf(results, 'lifecycles')).toEqual([
      {
        about: 'lifecycle boxes',
        problem: 'no replica has looked after it as far as is recorded; 1 document of Thing is due or at rest',
        advice: expect.stringContaining('phaselock lifecycles forget boxes'),
        repair: 'none',
      },
    ])
    await lifecycles.updateOne({ _id: 'thing' }, [{ $set: { handledAt: { $subtract: ['$$NOW', 600_000] } } }])
    expect(findingsOf(await check(), 'lifecycles')[0]!.problem).toMatch(/^no replica has looked after it for 10 min/)
    await looked()
    expect(findingsOf(await check(), 'lifecycles').map(({ about }) => about)).toEqual(['lifecycle boxes'])
  })

  test('a lifecycle that no replica has ever run here, though it has documents', async () => {
    await documents().insertOne({ _id: 'a', phase: 'Creating' })
    expect(findingsOf(await check(), 'lifecycles')).toMatchObject([
      { about: 'lifecycle thing', problem: 'no replica has ever run it here; 1 document is in Thing' },
    ])
  })

  test('plans are sound, too, in a database in which no replica has registered yet', async () => {
    await looked()
    await documents().insertOne({ _id: 'array', phase: 'Created', lockedAt: [new Date(0), new Date('2200-01-01')] })
    await database.db.collection(LIFECYCLES_COLLECTION).drop()
    expect(findingsOf(await check(), 'query plans')).toEqual([])
  })

  test('clocks: a difference counts only beyond what the round trips leave open', () => {
    const sample = (host: string, aheadMs: number, uncertainMs = 5) => ({ host, aheadMs, uncertainMs })
    expect(clockFindings([])).toEqual([])
    expect(clockFindings([sample('a', 0), sample('b', 400), sample('c', -90)])).toEqual([])
    expect(clockFindings([sample('a', 0), sample('b', 900, 500)])).toEqual([])
    expect(clockFindings([sample('a', 0), sample('b', 2_000), sample('c', -1_000)])).toMatchObject([
      { about: 'c and b', problem: expect.stringContaining('differ by at least 3 s') },
    ])
  })
})
