import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { InvalidOptions, lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import { beginOperation, listDocuments, operationLifecycle } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { backDate, recordingLogger, replicaOf, type Thing, thingSpec, things, thingWith } from '../support/thing.js'

/** Handlers may be JavaScript: nothing of what they return is typed here. */
type AnyHandler = (doc: any, step: any) => unknown

describe('a bug of the program', () => {
  const database = useDatabase()
  const read = async (id = 'a') => (await things(database.db).findOne({ _id: id })) as Document
  const insert = (...ids: string[]) => things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))
  const isParked = ({ lockedAt }: Document) => lockedAt.getTime() > new Date('9999-01-01').getTime()

  /** Runs what is due so often, each time when the sleep after the last run is over. */
  async function runs(handler: AnyHandler, times: number, lifecycle?: ReturnType<typeof spec>) {
    const logger = recordingLogger()
    const replica = replicaOf(database.db, thingWith(handler as never, lifecycle as never), { logger })
    for (let i = 0; i < times; i += 1) {
      await replica.runOnce()
      const ids = (await things(database.db).find({ phase: 'Creating' }).toArray()).filter((doc) => !isParked(doc))
      for (const { _id } of ids) await backDate(database.db, _id, 600_000)
    }
    await replica.stop()
    return logger
  }
  const spec = (more: object) => lifecycleOf<Thing>().define({ ...thingSpec, ...more } as typeof thingSpec)

  test.each<[string, AnyHandler, string]>([
    ['nothing is returned', () => undefined, 'returned nothing; expected the result of step.again()'],
    [
      'an unknown phase',
      (_doc, step) => step.moveTo('Nowhere'),
      `moveTo("Nowhere"): from 'Creating', expected one of the phases in its next`,
    ],
    ['an unknown option', (_doc, step) => step.wait('x', { fro: '1h' }), "wait: unknown option 'fro'"],
    ['an unknown option of children', (_doc, step) => step.removeChildren({ stat: 'x' }), "unknown option 'stat'"],
    [
      'an option of something else of Phaselock',
      () => {
        throw new InvalidOptions('new Unavailable', ["unknown option 'retryafter'"])
      },
      "unknown option 'retryafter'",
    ],
  ])('%s: parked at the third time in a row, and the reason says so', async (_what, handler, message) => {
    await insert('a')
    let calls = 0
    const counted: AnyHandler = (doc, step) => {
      calls += 1
      return handler(doc, step)
    }
    await runs(counted, 2)
    expect(isParked(await read())).toBe(false)
    await runs(counted, 3)
    const found = await read()
    expect(calls).toBe(3)
    expect(isParked(found)).toBe(true)
    expect(found['progress']).toMatchObject({ attempts: 3, error: { bugs: 3 } })
    const { reason } = found['progress'].history.at(-1)
    expect(reason).toContain('a bug of the program, 3 times in a row: ')
    expect(reason).toContain(message)
    expect(reason).toContain('phaselock operations run unpark --lifecycle thing --bugs')
  })

  test('only bugs in a row count: other errors in between begin anew, and park at maxAttempts as before', async () => {
    await insert('a')
    let calls = 0
    await runs(() => {
      calls += 1
      if (calls === 3) throw new Error('no ink')
    }, 5)
    expect(isParked(await read())).toBe(false)
    expect((await read())['progress']).toMatchObject({ attempts: 5, error: { bugs: 2 } })
    await runs(() => undefined, 1)
    expect(isParked(await read())).toBe(true)
  })

  test('three other errors park nothing', async () => {
    await insert('a')
    await runs(() => {
      throw new TypeError('the database of somebody else')
    }, 4)
    const { progress, ...found } = await read()
    expect(isParked(found)).toBe(false)
    expect(progress.error).not.toHaveProperty('bugs')
  })

  test('an operation brings back all that are parked for bugs, and nothing else', async () => {
    await insert('a', 'b', 'c')
    await runs((doc, step) => (doc._id === 'c' ? step.park('ask ana') : undefined), 3)
    const model = thingWith((() => undefined) as never).model
    const system = { db: database.db, models: [model] }
    const bugs = async () =>
      (await listDocuments(system, { bugs: true })).documents.map(({ document }) => document['_id'])
    expect((await bugs()).sort()).toEqual(['a', 'b'])
    const selection = { lifecycle: 'thing', bugs: true }
    expect(await beginOperation(system, { action: 'unpark', selection, by: 'ana' })).toMatchObject({ expected: 2 })
    const worker = new Replica({
      ...{ db: database.db, logger: silentLogger },
      lifecycles: [operationLifecycle({ db: database.db })],
    })
    await worker.runOnce()
    await worker.stop()
    expect(await bugs()).toEqual([])
    expect(isParked(await read('c'))).toBe(true)
    // The mend.
    await runs((_doc, step) => step.moveTo('Created'), 1)
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(2)
  })

  test('a replica with another definition of the lifecycle takes them at once, one with the same leaves them', async () => {
    await insert('a', 'b')
    await runs((doc, step) => (doc._id === 'b' ? step.park('ask ana') : undefined), 3)
    const mended: AnyHandler = (_doc, step) => step.moveTo('Created')
    await runs(mended, 1)
    expect(await read()).toMatchObject({ phase: 'Creating' })
    const logger = await runs(mended, 1, spec({ maxAttempts: 7 }))
    expect(await read()).toMatchObject({ phase: 'Created' })
    expect(isParked(await read('b'))).toBe(true)
    expect(logger.lines.map(({ message }) => message)).toContain(
      'thing: what a bug of the program had parked is tried again (1), because its definition is new',
    )
  })

  test('beside a replica that has another definition, the older one parks none again', async () => {
    await insert('a')
    const old = replicaOf(database.db, thingWith((() => undefined) as never), { logger: silentLogger })
    const oldRuns = async () => {
      await old.runOnce()
      if (!isParked(await read())) await backDate(database.db, 'a', 600_000)
    }
    for (let i = 0; i < 3; i += 1) await oldRuns()
    expect(isParked(await read())).toBe(true)
    const mended = thingWith(
      (async (_doc: never, step: any) => step.moveTo('Created')) as never,
      spec({ maxAttempts: 7 }) as never,
    )
    const next = replicaOf(database.db, mended, { logger: silentLogger })
    await next.prepare()
    for (let i = 0; i < 4; i += 1) await oldRuns()
    expect(await read()).toMatchObject({ progress: { attempts: 4, error: { bugs: 4 } } })
    expect(isParked(await read())).toBe(false)
    await next.runOnce()
    expect(await read()).toMatchObject({ phase: 'Created' })
    for (const replica of [old, next]) await replica.stop()
  })

  test('what a replica that was killed as it started has left parked, the next one takes', async () => {
    await insert('a')
    await runs(() => undefined, 3)
    const mended: AnyHandler = (_doc, step) => step.moveTo('Created')
    const other = spec({ maxAttempts: 7 })
    const killed = new Proxy(database.db, {
      get: (target, name) => {
        if (name !== 'collection') return Reflect.get(target, name)
        return (called: string, ...more: never[]) => {
          const collection = target.collection(called, ...more)
          if (called === 'Thing')
            collection.updateMany = async () => {
              throw new Error('killed')
            }
          return collection
        }
      },
    })
    const first = replicaOf(killed, thingWith(mended as never, other as never), { logger: silentLogger })
    await first.prepare()
    await first.stop()
    expect(isParked(await read())).toBe(true)
    await runs(mended, 1, other)
    expect(await read()).toMatchObject({ phase: 'Created' })
  })
})
