import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals'
import { Binary, Decimal128, type Document, Double, Long, ObjectId, Timestamp, UUID } from 'mongodb'
import { InvalidThread, lifecycleOf, OwnerClient, Replica, type ReplicaOptions, thread } from '../../src/index.js'
import { ThreadPool } from '../../src/phases/threads/index.js'
import { systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import {
  recordingLogger,
  recordingObserver,
  replicaOf,
  type Thing,
  thingOf,
  thingSpec,
  things,
  thingWith,
} from '../support/thing.js'

jest.setTimeout(90_000)
/** Threads take their time to start where others want the cores too. */
const soon = <T>(check: () => T | Promise<T>) => eventually(check, { timeoutMs: 40_000 })

/** What has failed isn't tried again in a test's time. */
const NO_RETRY = { backOff: { firstError: '1m' } }
const MODULE = new URL('./fixtures/thread-handlers.mjs', import.meta.url)

describe('a handler in a thread', () => {
  const database = useDatabase()
  let folder = ''
  const replicas: Replica[] = []

  beforeEach(async () => {
    folder = await mkdtemp(join(process.env['PHASELOCK_TEST_FOLDER'] ?? tmpdir(), 'threads-'))
  })
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
    await rm(folder, { recursive: true, force: true })
  })

  const file = (name: string) => join(folder, name)
  const exists = (name: string) => readFile(file(name), 'utf8')
  const release = () => writeFile(file('release'), '')
  const paths = () => ({ began: file('began'), release: file('release') })

  function replica(name: string, settings: object = {}, more: Partial<ReplicaOptions> = {}): Replica {
    const handler = thread(MODULE, { export: name, ...(name === 'default' && { terminateAfter: '100ms' }) })
    const made = replicaOf(database.db, thingWith(handler, thingOf(settings)), { threads: 2, grace: '0s', ...more })
    replicas.push(made)
    return made
  }

  async function runs(name: string, document: object, more: Partial<ReplicaOptions> = {}) {
    const logger = recordingLogger()
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', ...document })
    await replica(name, NO_RETRY, { logger, ...more }).runOnce()
    return { document: await things(database.db).findOne({ _id: 'a' }), lines: logger.lines }
  }

  test('computes without a pause: its lease is renewed and another document goes on to its end', async () => {
    const { db } = database
    const observer = recordingObserver()
    const one = replica('default', { lockTimeout: '6s' }, { observer })
    await things(db).insertOne({ _id: 'busy', phase: 'Creating', ...paths() })
    await one.start()
    expect(await soon(() => exists('began'))).toBe('false')
    const { lockedAt } = (await things(db).findOne({ _id: 'busy' }))!
    await things(db).insertOne({ _id: 'other', phase: 'Deleting' })
    await soon(async () => expect(await things(db).findOne({ _id: 'other' })).toBeNull())
    await soon(async () => {
      const busy = await things(db).findOne({ _id: 'busy' })
      expect(busy?.['lockedAt'].getTime()).toBeGreaterThan(lockedAt.getTime())
    })
    await release()
    await soon(async () => {
      expect(await things(db).findOne({ _id: 'busy' })).toMatchObject({ phase: 'Created', n: 1 })
    })
    expect(observer.losses).toEqual([])
  })

  test('BSON types arrive as themselves, there and back', async () => {
    const sent = {
      id: new ObjectId(),
      at: new Date(1_000),
      big: Long.fromString('9007199254740993'),
      price: Decimal128.fromString('1.50'),
      bytes: new Binary(Buffer.from('bytes')),
      uuid: new UUID(),
      stamp: new Timestamp({ t: 1, i: 2 }),
      whole: 5,
    }
    const { document } = await runs('types', sent)
    const { is, back } = document!
    expect(is).toEqual({
      ...Object.fromEntries(Object.keys(sent).map((name) => [name, true])),
      step: [null, 1, 'number', 1],
    })
    expect(back).toMatchObject(sent)
    const raw = await things(database.db).findOne({ _id: 'a' }, { promoteValues: false })
    const made = raw!['made'].map((value: any) => value?._bsontype ?? value?.constructor?.name ?? value)
    expect(made).toEqual(['ObjectId', 'Long', 'Double', 'Int32', 'Double', null, 'Date'])
    expect(raw!['made'][2]).toEqual(new Double(5))
  })

  test('checkpoints under its token, also one that it forgot to wait for; its log lines are the step’s', async () => {
    const { document, lines } = await runs('checkpoints', {})
    expect(document).toMatchObject({ phase: 'Created', n: 2, key: expect.any(ObjectId) })
    expect(document!['progress'].history.map((one: any) => one.outcome)).toEqual([
      'checkpoint',
      'again',
      'checkpoint',
      'moveTo',
    ])
    const line = lines.find(({ message }) => message === 'stored')
    expect(line).toMatchObject({
      level: 'info',
      fields: { id: 'a', lifecycle: 'thing', error: { name: 'RangeError' } },
    })
  })

  test('a checkpoint on a lease that was taken throws LeaseLost in the thread, and nothing is stored', async () => {
    const { db } = database
    const observer = recordingObserver()
    await things(db).insertOne({ _id: 'a', phase: 'Creating', ...paths() })
    const running = replica('losesLease', {}, { observer }).runOnce()
    await soon(() => exists('began'))
    await things(db).updateOne({ _id: 'a' }, { $set: { lockedBy: 'other~1#1.1' } })
    await release()
    await running
    const document = await things(db).findOne({ _id: 'a' })
    expect(document).toMatchObject({ phase: 'Creating', lockedBy: 'other~1#1.1' })
    expect(document).not.toHaveProperty('n')
    expect(observer.losses.map(({ how }) => how)).toEqual(['refused'])
  })

  test('that fails, however it does, is an error of its step alone', async () => {
    const errors = {
      throws: {
        name: 'RangeError',
        message: 'too far',
        stack: expect.stringContaining('thread-handlers.mjs'),
        causes: [
          { name: 'AggregateError', message: 'the cause' },
          { name: 'TypeError', message: 'one of them' },
        ],
      },
      text: { name: 'Thrown', message: 'just a text' },
      exits: { name: 'ThreadDied', message: expect.stringMatching(/worker exited with code: 3; a handler ends by/) },
      unseen: { name: 'ThreadDied', message: expect.stringContaining('thrown in a timer') },
      memory: { name: 'ThreadDied', message: expect.stringMatching(/ran out of memory: do less at once/) },
      function: { name: 'InvalidOutcome', message: "set: 'effects.0' is a function, which can't be stored" },
      nothing: { name: 'InvalidOutcome', message: expect.stringContaining('returned nothing') },
      elsewhere: {
        name: 'InvalidOutcome',
        message: expect.stringContaining('expected one of the phases in its next: Created, Deleting'),
      },
    }
    const { db } = database
    await things(db).insertMany(Object.keys(errors).map((how) => ({ _id: how, phase: 'Creating', how })))
    await replica('fails', NO_RETRY, { threadMemoryMb: 32 }).runOnce()
    const found = await things(db).find().toArray()
    expect(Object.fromEntries(found.map(({ _id, progress }) => [_id, progress.error]))).toMatchObject(errors)
    expect(found.map(({ progress }) => progress.attempts)).toEqual(found.map(() => 1))
  })

  test('asks people, and finds what they answered', async () => {
    const { db } = database
    const one = replica('asks', NO_RETRY)
    await things(db).insertOne({ _id: 'a', phase: 'Creating' })
    await one.runOnce()
    expect((await things(db).findOne({ _id: 'a' }))!['progress'].question).toMatchObject({
      ...{ question: 'Ship it?', options: ['yes', 'no'], to: ['ops'], deadline: expect.any(Date) },
    })
    const owner = new OwnerClient(db, thingOf({}).model)
    expect(await owner.answer('a', { option: 'yes', by: 'ana' })).toMatchObject({ kind: 'answered' })
    await one.runOnce()
    const is = { option: 'yes', by: 'ana', timedOut: false, isDate: true }
    expect(await things(db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created', is })
  })

  test('inserts children, and goes on when they are done', async () => {
    const { db } = database
    const toy = lifecycleOf<{ _id: string; n: number }>().define({
      ...{ name: 'toy', collection: 'Toy', child: true },
      phases: { Made: { next: ['Sold'] }, Sold: { rest: true } },
    })
    const toys = toy.handle({ Made: async (_doc, step) => step.moveTo('Sold') })
    const parents = thingWith(thread(MODULE, { export: 'hasChild' }), thingOf(NO_RETRY))
    const one = new Replica({ db, lifecycles: [parents, toys], threads: 2, grace: '0s' })
    replicas.push(one)
    await things(db).insertOne({ _id: 'a', phase: 'Creating' })
    await one.runOnce()
    const effects = ['1 of 1 child has ended', 'childrenDone: expected done, got decided: it is called done now']
    expect(await things(db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created', effects })
    expect(await db.collection('Toy').findOne({})).toMatchObject({ _id: 'thing/a/a', n: 1, phase: 'Sold' })
  })

  test('that throws Unavailable uses no attempt and waits for as long as it says', async () => {
    const { document } = await runs('fails', { how: 'unavailable' })
    expect(document!['progress']).toMatchObject({ attempts: 0, waitingFor: 'the printer is off' })
    expect(document!['progress'].history.at(-1)).toMatchObject({ outcome: 'unavailable' })
  })

  test.each([true, false])('is asked to stop at its step timeout; it listens: %s', async (listens) => {
    const { db } = database
    await things(db).insertOne({ _id: 'a', phase: 'Creating', ...paths(), listens })
    await replica('default', { stepTimeout: '100ms', ...NO_RETRY }, { threads: 1 }).runOnce()
    const error = { name: 'StepTimeout' }
    expect(await things(db).findOne({ _id: 'a' })).toMatchObject({ progress: { attempts: 1, error } })
  })

  test('whose replica stops is ended after its grace, and its document is free at once', async () => {
    const { db } = database
    await things(db).insertOne({ _id: 'a', phase: 'Creating', ...paths() })
    const one = replica('default')
    await one.start()
    await soon(() => exists('began'))
    await one.stop()
    // It may be the replica's last command, on its way still.
    await soon(async () => {
      const document = await things(db).findOne({ _id: 'a' })
      expect(document).toMatchObject({ phase: 'Creating', progress: { attempts: 0, claims: 0 } })
      expect(document).not.toHaveProperty('lockedBy')
    })
  })

  test('more of them than threads: others of their lifecycle go on, and no more are held than can soon begin', async () => {
    const { db } = database
    const many = Array.from({ length: 30 }, (_, n) => ({ _id: `d${n}`, phase: 'Creating', ...paths() }))
    await things(db).insertMany(many)
    const one = replica('default', { concurrency: 8 }, { threads: 2 })
    await one.start()
    await soon(() => exists('began'))
    await things(db).insertMany(Array.from({ length: 20 }, (_, n) => ({ _id: `o${n}`, phase: 'Deleting' })))
    await soon(async () => expect(await things(db).countDocuments({ phase: 'Deleting' })).toBe(0))
    expect(await things(db).countDocuments({ lockedBy: { $exists: true } })).toBeLessThanOrEqual(3)
    expect(one.status().running).toBe(2)
    await release()
    await soon(async () => expect(await things(db).countDocuments({ phase: 'Created' })).toBe(30))
  })

  describe('that waits for a thread which another lifecycle has', () => {
    let aheadMs = 0
    const clock = { now: () => systemClock.now(), monotonicMs: () => systemClock.monotonicMs() + aheadMs }

    /** The clock goes to the step timeout at one stroke, on a busy machine too, and no lease is in danger. */
    const LONG = { stepTimeout: '1m', lockTimeout: '10m' } as const

    /** Of two documents one runs, the other waits. */
    async function oneWaits(): Promise<Replica> {
      aheadMs = 0
      const handler = thread(MODULE)
      const other = lifecycleOf<Thing>().define({ ...thingSpec, name: 'other', collection: 'Other', ...LONG })
      const lifecycles = [thingWith(handler, thingOf(LONG)), thingWith(handler, other)]
      const one = replica('default', {}, { lifecycles, clock, threads: 1, grace: '60s' })
      for (const name of ['Thing', 'Other']) await insert(name, { _id: name, phase: 'Creating', ...paths() })
      await one.start()
      await soon(() => exists('began'))
      await soon(() => one.status().running === 2)
      return one
    }
    const insert = (name: string, document: Document) => database.db.collection(name).insertOne(document)
    const both = async () => [
      ...(await database.db.collection('Thing').find().toArray()),
      ...(await database.db.collection('Other').find().toArray()),
    ]

    test('its step timeout does not run meanwhile', async () => {
      await oneWaits()
      aheadMs = 65_000
      // What ran is past its step timeout; then it is the turn of what has waited for as long.
      const outcomes = async () => (await both()).flatMap(({ progress }) => progress.history ?? [])
      await soon(async () => expect(await outcomes()).toHaveLength(1))
      await release()
      await soon(async () => expect((await both()).map(({ phase }) => phase)).toEqual(['Created', 'Created']))
      expect((await outcomes()).map(({ outcome }) => outcome).toSorted()).toEqual(['error', 'moveTo', 'moveTo'])
    })

    test('past its lease it doesn’t begin: it is unlocked, and begins under a new one', async () => {
      await oneWaits()
      aheadMs = 605_000
      await release()
      await soon(async () => expect((await both()).map(({ phase }) => phase)).toEqual(['Created', 'Created']))
      const waited = (await both()).find(({ progress }) => progress.history.length > 1)
      expect(waited?.['progress'].history.map(({ outcome }: Document) => outcome)).toEqual(['released', 'moveTo'])
      expect(waited).toMatchObject({ n: 1 })
    })

    test('a stop gives it back at once, while what runs may finish', async () => {
      const stopped = (await oneWaits()).stop()
      await soon(async () => expect((await both()).filter(({ lockedBy }) => lockedBy)).toHaveLength(1))
      await release()
      await stopped
      const found = (await both()).toSorted((a, b) => a['phase'].localeCompare(b['phase']))
      expect(found.map(({ phase }) => phase)).toEqual(['Created', 'Creating'])
      expect(found[1]).toMatchObject({ progress: { claims: 0, attempts: 0 } })
      expect(found.filter(({ lockedBy }) => lockedBy)).toEqual([])
    })
  })
})

describe('a declaration that can’t work', () => {
  const database = useDatabase()

  test.each([
    [async () => undefined, /expected a module's URL, .*got a function; a closure can't be sent/],
    ['./render.js', /expected a module's URL, .*got "\.\/render\.js"/],
    [new URL('https://a.example/render.js'), /got https:\/\/a\.example/],
    [undefined, /got undefined/],
    [new URL('./fixtures/nowhere.mjs', import.meta.url), /there is no file .*nowhere\.mjs/],
  ])('is refused when it is made: %p', (module, said) => {
    expect(() => thread(module as never)).toThrow(InvalidThread)
    expect(() => thread(module as never)).toThrow(said)
  })

  test('so are options that it doesn’t have', () => {
    expect(() => thread(MODULE, { exports: 'x' } as never)).toThrow(
      /unknown option 'exports' \(did you mean 'export'\?\); known: export,/,
    )
    expect(() => thread(MODULE, { terminateAfter: '5' as never })).toThrow(/terminateAfter: expected a duration/)
  })

  test.each([
    ['missing', /phase 'Creating': thread\(.*export: 'missing'.*expected an export 'missing' .* got none; .*types/],
    ['notAFunction', /got number/],
  ])('a module without the function keeps the replica from starting: %s', async (name, said) => {
    const replica = replicaOf(database.db, thingWith(thread(MODULE, { export: name })))
    await expect(replica.start()).rejects.toThrow(said)
    await replica.stop()
  })

  test('so does a module that never ends to load', async () => {
    const never = thread(new URL('./fixtures/thread-never-loads.mjs', import.meta.url))
    const threadPool = new ThreadPool({ size: 1, loadWithinMs: 500 })
    const replica = replicaOf(database.db, thingWith(never), { threadPool })
    await expect(replica.start()).rejects.toThrow(
      /thread\(thread-never-loads\.mjs\): .*while it loaded the module: .*not loaded after 500 ms/,
    )
    await replica.stop()
  })

  test('a handler called with a step that no replica made says so', async () => {
    const handler = thread(MODULE) as (doc: object, step: object) => Promise<unknown>
    await expect(handler({}, {})).rejects.toThrow(/expected a replica to call it/)
  })
})
