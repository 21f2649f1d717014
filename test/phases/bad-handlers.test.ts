import { Worker } from 'node:worker_threads'
import { describe, expect, test } from '@jest/globals'
import { BSON, type Document } from 'mongodb'
import { InvalidOutcome, LeaseLost, type Step, Unavailable } from '../../src/index.js'
import { backDate as backDateAll } from '../../src/testing/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { recordingLogger, recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

/** Handlers may be JavaScript: nothing of what they are given or return is typed here. */
type AnyHandler = (doc: any, step: any) => unknown

describe('a handler that misbehaves', () => {
  const database = useDatabase()
  const read = async (id = 'a') => (await things(database.db).findOne({ _id: id })) as Document

  /** One document through `runOnce` beside another with a good handler, which must not notice. */
  async function run(handler: AnyHandler, settings: object = {}, doc: object = {}) {
    const logger = recordingLogger()
    const observer = recordingObserver()
    const guarded: AnyHandler = (one, step) => (one._id === 'good' ? step.moveTo('Created') : handler(one, step))
    // A pause that no busy machine outlasts: what failed isn't due again in the same run.
    const backOff = { firstError: '10m', longestError: '10m' }
    const replica = replicaOf(database.db, thingWith(guarded as never, thingOf({ backOff, ...settings })), {
      logger,
      observer,
      random: () => 0.5,
    })
    await things(database.db).insertMany([
      { _id: 'a', phase: 'Creating', ...doc },
      { _id: 'good', phase: 'Creating' },
    ])
    await replica.runOnce()
    expect(await read('good')).toMatchObject({ phase: 'Created' })
    const lines = (level: string) => logger.lines.filter((line) => line.level === level).map((line) => line.message)
    return { replica, logger, lines, observer, found: await read() }
  }

  const cyclic = () => {
    const error = new Error('outer', { cause: new Error('inner') })
    ;(error.cause as Error).cause = error
    return error
  }
  const withGetters = () => {
    const fails = (what: string) => () => {
      throw new Error(`no ${what} for you`)
    }
    // The stack first: defining it reads the message.
    const error = Object.defineProperty(new Error('x'), 'stack', { get: fails('stack') })
    return Object.defineProperty(error, 'message', { get: fails('message') })
  }
  const looped: Record<string, unknown> = { a: 1 }
  looped['self'] = looped

  test.each<[string, () => unknown, string, string | RegExp]>([
    ['an Error', () => new RangeError('too far'), 'RangeError', 'too far'],
    ['a string', () => 'just text', 'Thrown', 'just text'],
    ['undefined', () => undefined, 'Thrown', 'undefined'],
    ['null', () => null, 'Thrown', 'null'],
    ['an object', () => ({ status: 503 }), 'Thrown', '{"status":503}'],
    ['an object that contains itself', () => looped, 'Thrown', '[object Object]'],
    ['an error with a message of 10 MB', () => new Error('m'.repeat(10_000_000)), 'Error', /^m{2000}$/],
    ['a string of 10 MB', () => 's'.repeat(10_000_000), 'Thrown', /^s{2000}$/],
    ['an error with a cyclic cause', cyclic, 'Error', 'outer'],
    ['an error whose properties throw', withGetters, 'Error', ''],
    ['an error whose message is no text', () => Object.assign(new Error('x'), { message: 42 }), 'Error', '42'],
  ])('throws %s: an attempt with what it threw, bounded; it backs off', async (_name, make, name, message) => {
    const { found, lines, observer } = await run(async () => {
      throw make()
    })
    expect(found).toMatchObject({ phase: 'Creating', progress: { attempts: 1, claims: 0, error: { name } } })
    const { error, history, resumeAt } = found['progress']
    if (typeof message === 'string') expect(error.message).toBe(message)
    else expect(error.message).toMatch(message)
    expect(history).toHaveLength(1)
    expect(history[0]).toMatchObject({ outcome: 'error', reason: error.message })
    expect(resumeAt.getTime() - history[0].at.getTime()).toBe(600_000)
    expect(found).not.toHaveProperty('lockedBy')
    expect(BSON.calculateObjectSize(found)).toBeLessThan(20_000)
    const causes = error.causes ? ' (caused by Error: inner)' : ''
    expect(lines('warn')).toEqual([`a step failed: ${error.message}${causes}`])
    expect(observer.steps.filter((step) => step.id === 'a')).toMatchObject([{ outcome: 'error' }])
  })

  test('throws an error with causes: stored as a bounded list with their codes, logged, without the frames of Phaselock', async () => {
    const refused = (address: string) =>
      Object.assign(new Error(`connect ECONNREFUSED ${address}:1`), { code: 'ECONNREFUSED' })
    const every = Object.assign(new AggregateError([refused('::1'), refused('127.0.0.1')], ''), {
      code: 'ECONNREFUSED',
    })
    const { found, lines, logger } = await run(async () => {
      throw Object.assign(new TypeError('fetch failed', { cause: every }), { code: 7 })
    })
    const { error } = found['progress']
    expect(error).toMatchObject({ name: 'TypeError', message: 'fetch failed', code: 7 })
    expect(error.causes).toEqual([
      { name: 'AggregateError', message: '', code: 'ECONNREFUSED' },
      { name: 'Error', message: 'connect ECONNREFUSED ::1:1', code: 'ECONNREFUSED' },
      { name: 'Error', message: 'connect ECONNREFUSED 127.0.0.1:1', code: 'ECONNREFUSED' },
    ])
    expect(lines('warn')).toEqual([
      'a step failed: fetch failed (caused by AggregateError ECONNREFUSED; Error: connect ECONNREFUSED ::1:1; Error: connect ECONNREFUSED 127.0.0.1:1)',
    ])
    expect(logger.lines.find(({ level }) => level === 'warn')?.fields).toMatchObject({ error: { code: 7 } })
    expect(error.stack).toMatch(/^TypeError: fetch failed\n.*bad-handlers\.test/)
    expect(error.stack).not.toContain('/phases/engine/')
  })

  test.each<[string, () => unknown]>([
    [
      'a chain of 1,000 causes',
      () => Array.from({ length: 1_000 }).reduce((cause) => new Error('c'.repeat(9_000), { cause }), undefined),
    ],
    [
      'an AggregateError of 100,000',
      () => new AggregateError(Array.from({ length: 100_000 }, () => new Error('c'.repeat(1_000)))),
    ],
    [
      'causes that contain each other',
      () => {
        const [one, other] = [new AggregateError([], 'c'), new Error('c')]
        one.errors.push(one, other, one)
        other.cause = one
        return one
      },
    ],
    [
      'a cause that throws when it is read',
      () =>
        Object.defineProperty(new Error('c'), 'cause', {
          get: () => {
            throw new Error('no')
          },
        }),
    ],
    ['a cause that is no error', () => new Error('c', { cause: { status: 503 } })],
  ])('throws an error with %s: the document stays small', async (_name, make) => {
    const { found } = await run(async () => {
      throw make()
    })
    expect(found['progress'].error.message).toMatch(/^c*$/)
    expect(found['progress'].error.causes?.length ?? 0).toBeLessThanOrEqual(8)
    expect(BSON.calculateObjectSize(found)).toBeLessThan(20_000)
  })

  test('throws at once instead of returning a promise: the same', async () => {
    const { found } = await run(() => {
      throw new Error('not even async')
    })
    expect(found['progress'].error.message).toBe('not even async')
  })

  test.each<[string, (step: Step<string, any>) => unknown, RegExp]>([
    ['a function', (step) => step.again({ set: { n: () => 1 } }), /^set: 'n' is a function, which can't be stored$/],
    ['a function deep in it', (step) => step.again({ set: { a: [{ b: () => 1 }] } }), /^set: 'a.0.b' is a function/],
    ['a symbol', (step) => step.again({ set: { n: Symbol('x') } }), /^set: 'n' is a symbol/],
    ['an invalid date', (step) => step.again({ set: { at: new Date('never') } }), /^set: 'at' is an invalid date/],
    ['itself', (step) => step.again({ set: looped }), /^set: deeper than 100 levels, or a cycle$/],
    ['17 MB', (step) => step.again({ set: { blob: 'x'.repeat(17 * 1024 * 1024) } }), /^set: 18 MB is more than a doc/],
    ['NUL in a name', (step) => step.again({ set: { 'a\0b': 1 } }), /has the character NUL, which BSON can't store/],
    ['a list', (step) => step.again({ set: [1] as never }), /^set: expected an object with the owner's fields/],
    ...['_id', 'state', 'phase', 'lockedAt', 'lockedBy', 'fence', 'progress', 'createdAt', 'updatedAt'].map(
      (name): [string, (step: Step<string, any>) => unknown, RegExp] => [
        `our ${name}`,
        (step) => step.moveTo('Created', { set: { [name]: 'x' } as never }),
        new RegExp(`^set: '${name}' is written by Phaselock`),
      ],
    ),
  ])('returns a set with %s: nothing of it is stored, an attempt that says why', async (_name, make, message) => {
    const { found, lines } = await run(async (_doc, step) => make(step))
    expect(found['phase']).toBe('Creating')
    expect(found['progress']).toMatchObject({ attempts: 1, error: { name: 'InvalidOutcome' } })
    expect(found['progress'].error.message).toMatch(message)
    expect(Object.keys(found).sort()).toEqual(
      ['_id', 'createdAt', 'fence', 'lockedAt', 'phase', 'progress', 'updatedAt'].sort(),
    )
    expect(lines('error')).toHaveLength(1)
  })

  test('stores as they are: `$` and dots deep in a value, undefined in one as null, texts with NUL', async () => {
    const box = { $inc: { 'x.y': 1 }, list: [{ $literal: '$name' }], text: 'a\0b', nothing: undefined }
    const { found } = await run(async (_doc, step) => step.moveTo('Created', { set: { box } }))
    expect(found).toMatchObject({ phase: 'Created', box: { ...box, nothing: null } })
  })

  test.each<[string, object]>([
    ['our fields', { lockedBy: 'x', phase: 'Created' }],
    ['a `$` key', { $set: 1 }],
    ['a function', { n: () => 1 }],
  ])('checkpoints %s: InvalidOutcome at the call, nothing is stored, the lease stays its own', async (_name, set) => {
    let thrown: unknown
    const { found } = await run(async (_doc, step) => {
      await step.checkpoint(set).catch((error: unknown) => {
        thrown = error
      })
      return step.moveTo('Created', { set: { n: 1 } })
    })
    expect(thrown).toBeInstanceOf(InvalidOutcome)
    expect(found).toMatchObject({ phase: 'Created', n: 1 })
    expect(found).not.toHaveProperty('$set')
  })

  test('calls checkpoint after returning: LeaseLost, nothing is stored, a line in the log', async () => {
    let late: any
    const { found, lines } = await run(async (_doc, step) => {
      late = step
      return step.moveTo('Created')
    })
    await expect(late.checkpoint({ n: 9 })).rejects.toThrow(LeaseLost)
    expect(await read()).toEqual(found)
    expect(found).not.toHaveProperty('n')
    expect(lines('warn')).toEqual(['checkpoint was called after the step had ended: nothing was stored'])
  })

  test('calls checkpoint after returning, waiting for nobody: the log says so, the process lives on', async () => {
    let late: any
    const { logger } = await run(async (_doc, step) => {
      late = step
      return step.wait('x', { for: '1h' })
    })
    const rejected = new Promise<unknown[]>((resolve) => {
      const seen: unknown[] = []
      const onRejection = (reason: unknown) => seen.push(reason)
      process.on('unhandledRejection', onRejection)
      void late.checkpoint({ n: 9 })
      setImmediate(() =>
        setImmediate(() => {
          process.off('unhandledRejection', onRejection)
          resolve(seen)
        }),
      )
    })
    expect(await rejected).toEqual([])
    expect(logger.lines.map((line) => line.message)).toContain(
      'checkpoint was called after the step had ended: nothing was stored',
    )
    expect(await read()).not.toHaveProperty('n')
  })

  test('changes and freezes what it was given, deeply: neither the next step nor the database sees it', async () => {
    const seen: unknown[] = []
    const { found } = await run(
      async (doc, step) => {
        seen.push(structuredClone({ at: doc.at, box: doc.box, history: doc.progress.history?.length ?? 0 }))
        doc.at.setTime(0)
        doc.box.list.push('x')
        doc.progress.history = 'gone'
        doc.lockedBy = 'me'
        doc.phase = 'Created'
        Object.freeze(doc)
        return seen.length < 3 ? step.again() : step.moveTo('Created')
      },
      {},
      { at: new Date(5_000), box: { list: [1] } },
    )
    const same = { at: new Date(5_000), box: { list: [1] } }
    expect(seen).toMatchObject([same, same, same])
    expect(found).toMatchObject({ phase: 'Created', ...same })
    expect(found['progress'].history.map(({ count }: Document) => count)).toEqual([2, 1])
  })

  test('keeps its outcome and changes it after returning: what it was at the return counts', async () => {
    const { found } = await run(async (_doc, step) => {
      const outcome = step.moveTo('Created', { set: { n: 1 } })
      void Promise.resolve().then(() => setImmediate(() => Object.assign(outcome, { kind: 'park', phase: 'Nowhere' })))
      return outcome
    })
    expect(found).toMatchObject({ phase: 'Created', n: 1 })
  })

  test('blocks the event loop for 2 x lockTimeout: another replica has it, its outcome is dropped', async () => {
    const lifecycle = thingOf({ lockTimeout: '1s' })
    const observer = recordingObserver()
    const logger = recordingLogger()
    const shared = new Int32Array(new SharedArrayBuffer(4))
    const other = otherReplica(database.uri, 2_000, shared)
    let aborted: boolean | undefined
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        const { signal } = step
        // Nothing of this process runs until the other replica, in a thread of its own, has claimed and moved the document.
        Atomics.store(shared, 0, 1)
        Atomics.notify(shared, 0)
        Atomics.wait(shared, 0, 1, 60_000)
        await eventually(() => signal.aborted)
        aborted = signal.aborted
        return step.moveTo('Created', { set: { n: 1 } })
      }, lifecycle),
      { observer, logger },
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    await other
    expect(await read()).toMatchObject({ phase: 'Created', n: 2, lockedAt: new Date(0) })
    expect(aborted).toBe(true)
    expect(observer.losses.map((loss) => loss.how)).toContain('refused')
    expect(observer.steps).toEqual([])
    expect(logger.lines.map((line) => line.message)).toContainEqual(expect.stringMatching(/^lease lost \(refused\)/))
    // It goes on with others.
    await things(database.db).insertOne({ _id: 'b', phase: 'Created', state: 'Deleted' })
    await replica.runOnce()
    expect(await read('b')).toBeNull()
  })

  test('blocks the event loop, and nobody else wants the document: its outcome is recorded', async () => {
    const lifecycle = thingOf({ lockTimeout: '1s' })
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_000)
        return step.moveTo('Created')
      }, lifecycle),
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    expect(await read()).toMatchObject({ phase: 'Created' })
  })

  test('an outage of 20 minutes told by Unavailable parks nothing of 50 documents, and ends with the outage', async () => {
    let isDown = true
    const observer = recordingObserver()
    const replica = replicaOf(
      database.db,
      thingWith(
        async (_doc, step) => {
          if (isDown) throw new Unavailable('the cluster does not answer', { retryAfter: '50s' })
          return step.moveTo('Created')
        },
        thingOf({ maxAttempts: 2 }),
      ),
      { observer },
    )
    const ids = Array.from({ length: 50 }, (_, i) => `d${i}`)
    await things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))
    await replica.runOnce()
    for (let minute = 0; minute < 20; minute += 1) {
      await backDateAll(database.db.collection('Thing'), 60_000)
      await replica.runOnce()
    }
    expect(new Set(observer.steps.map((step) => step.outcome))).toEqual(new Set(['unavailable']))
    expect(await things(database.db).countDocuments({ phase: 'Creating', 'progress.attempts': 0 })).toBe(50)
    const [sample] = await things(database.db).find().limit(1).toArray()
    expect(sample!['progress'].history).toMatchObject([{ outcome: 'unavailable', count: 21 }])
    isDown = false
    await backDateAll(database.db.collection('Thing'), 60_000)
    await replica.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(50)
  })
})

/** Another replica in a thread of its own: takes the document when its lease has run out and `afterMs` are over, and moves it. */
function otherReplica(uri: string, afterMs: number, shared: Int32Array): Promise<void> {
  const driver = import.meta.resolve('mongodb')
  const code = `
    const { workerData: { driver, uri, afterMs, shared } } = require('node:worker_threads')
    import(driver).then(async ({ MongoClient }) => {
      Atomics.wait(shared, 0, 0, 60000)
      const client = await new MongoClient(uri).connect()
      const documents = client.db().collection('Thing')
      await new Promise((resolve) => setTimeout(resolve, afterMs))
      const due = { $expr: { $lt: ['$lockedAt', { $subtract: ['$$NOW', 1000] }] } }
      const lease = [{ $set: { lockedAt: '$$NOW', lockedBy: 'other~1#1.1' } }]
      while ((await documents.updateOne({ _id: 'a', phase: 'Creating', ...due }, lease)).matchedCount === 0);
      const end = { $set: { phase: 'Created', n: 2, lockedAt: new Date(0) }, $unset: { lockedBy: 1 } }
      await documents.updateOne({ _id: 'a', lockedBy: 'other~1#1.1' }, end)
      await client.close()
      Atomics.store(shared, 0, 2)
      Atomics.notify(shared, 0)
    })`
  return new Promise((resolve, reject) => {
    const worker = new Worker(code, { eval: true, workerData: { driver, uri, afterMs, shared } })
    worker.once('error', reject)
    worker.once('exit', () => resolve())
  })
}
