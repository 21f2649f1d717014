import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { type Document, MongoClient } from 'mongodb'
import { DOORBELL_COLLECTION } from '../../src/doorbell/index.js'
import {
  type Handler,
  lifecycleOf,
  OwnerClient,
  Replica,
  type ReplicaOptions,
  type RunnableLifecycle,
  type StepEnded,
} from '../../src/index.js'
import type { Rung } from '../../src/phases/reporting/observer.js'
import { sleep, systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { gate, recordingLogger } from '../support/thing.js'

interface Order {
  _id: string
  state?: 'Wanted' | 'Cancelled'
}

type Taking = Handler<'Packing' | 'Taken', Order>

const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  phases: {
    Taking: { next: ['Packing', 'Taken'] },
    Packing: { next: ['Taken'] },
    Taken: { rest: true },
    Cancelling: { next: ['Gone'] },
    Gone: { final: true },
  },
  rules: [{ when: 'Cancelled', from: ['Taking', 'Taken'], moveTo: 'Cancelling' }],
  concurrency: 1,
})

const orders = (Taking: Taking = async (_doc, step) => step.moveTo('Taken')): RunnableLifecycle =>
  order.handle({
    Taking,
    Packing: async (_doc, step) => step.moveTo('Taken'),
    Cancelling: async (_doc, step) => step.moveTo('Gone'),
  })

const database = useDatabase()
let opened: { close(): Promise<unknown> }[] = []

beforeEach(() => {
  opened = []
})
afterEach(async () => {
  for (const one of opened.reverse()) await one.close()
})

/** A replica that nobody ticks: it learns by rings and its own timers only. */
class Idler {
  readonly logger = recordingLogger()
  readonly steps: StepEnded[] = []
  readonly rung: Rung[] = []
  ticks = 0
  readonly replica: Replica

  constructor(lifecycle: RunnableLifecycle, more: Partial<ReplicaOptions> = {}) {
    this.replica = new Replica({
      db: database.db,
      lifecycles: [lifecycle],
      logger: this.logger,
      observer: {
        ticked: () => {
          this.ticks += 1
        },
        rung: (ring) => void this.rung.push(ring),
        stepEnded: (event) => void this.steps.push(event),
      },
      grace: '0s',
      ...more,
    })
    opened.push({ close: () => this.replica.stop() })
  }

  /** Listens, and has looked at what was there before. */
  async listens(): Promise<this> {
    await this.replica.prepare()
    this.replica.wakeBetweenTicks()
    await eventually(() => expect(this.ticks).toBe(1))
    expect(this.replica.status().doorbell).toBe('capped')
    return this
  }

  get warnings(): string[] {
    return this.logger.lines.filter(({ level }) => level === 'warn').map(({ message }) => message)
  }
}

const owner = () => new OwnerClient(database.db, order.model)
const raw = () => database.db.collection<Order & { phase: string }>('Order')
const entries = () => database.db.collection(DOORBELL_COLLECTION)

/** A client through a proxy. */
async function proxied(): Promise<{ proxy: TcpProxy; client: MongoClient }> {
  const proxy = await TcpProxy.start(database.uri)
  opened.push({ close: () => proxy.stop() })
  const client = await new MongoClient(proxy.uri, { serverSelectionTimeoutMS: 5_000 }).connect()
  opened.push(client)
  return { proxy, client }
}

describe('a replica whose tick stands still', () => {
  test('takes what is inserted by a ring that names the phase, without a look', async () => {
    let ticksAtFirstStep = -1
    const idler = new Idler(
      orders(async (_doc, step) => {
        ticksAtFirstStep = idler.ticks
        return step.moveTo('Taken')
      }),
    )
    await idler.listens()
    await owner().insert({ _id: 'a' } as never)
    await eventually(() => expect(idler.steps).toMatchObject([{ id: 'a', to: 'Taken' }]))
    expect(ticksAtFirstStep).toBe(1)
    // Perhaps rung again, where the insert took long.
    const named = { lifecycles: ['order'], phases: ['Taking'], ids: ['a'] }
    expect(idler.rung.slice(0, 2)).toEqual([{ lifecycles: [] }, named])
  })

  test('takes just what is named', async () => {
    let byHand: unknown
    const idler = new Idler(
      orders(async (_doc, step) => {
        byHand ??= await raw().findOne({ _id: 'by hand' })
        return step.moveTo('Taken')
      }),
    )
    await idler.listens()
    await raw().insertMany(['by hand', 'a'].map((_id) => ({ _id, phase: 'Taking' })))
    await entries().insertOne({ lifecycles: ['order'], phases: ['Taking'], ids: ['a'] })
    await eventually(() => expect(idler.steps[0]).toMatchObject({ id: 'a' }))
    expect(byHand).toEqual({ _id: 'by hand', phase: 'Taking' })
  })

  test('looks once more where nothing of what is named is there, or due', async () => {
    const idler = await new Idler(orders()).listens()
    await raw().insertOne({ _id: 'a', phase: 'Taking' })
    await entries().insertOne({ lifecycles: ['order'], phases: ['Taking'], ids: ['nobody'] })
    await eventually(() => expect(idler.steps).toMatchObject([{ id: 'a' }]))
  })

  test('looks once more for what was named while it claimed others, as it may not be stored yet', async () => {
    const { proxy, client } = await proxied()
    const db = client.db(database.db.databaseName)
    const idler = await new Idler(orders(), { db, doorbellDb: database.db }).listens()
    const isLook = ({ name, body }: { name: string; body: Document }) => name === 'find' && 'min' in body
    const before = proxy.seen.filter(isLook).length
    await raw().insertOne({ _id: 'a', phase: 'Taking' })
    const held = proxy.hold(({ name }) => name === 'findAndModify')
    await entries().insertOne({ lifecycles: ['order'], phases: ['Taking'], ids: ['a'] })
    const claim = await held
    await entries().insertOne({ lifecycles: ['order'], phases: ['Taking'], ids: ['late'] })
    await eventually(() => expect(idler.rung.at(-1)).toMatchObject({ ids: ['late'] }))
    claim.release()
    // A look is two commands.
    await eventually(() => expect(proxy.seen.filter(isLook).length).toBeGreaterThanOrEqual(before + 4))
  })

  test('takes operators for no names', async () => {
    const idler = await new Idler(orders()).listens()
    await raw().insertOne({ _id: 'a', phase: 'Taking' })
    await entries().insertOne({ lifecycles: ['order'], phases: ['Taking'], ids: [{ $gt: '' }] })
    await eventually(() => expect(idler.steps).toMatchObject([{ id: 'a' }]))
    expect(idler.rung.at(-1)).toEqual({ lifecycles: ['order'], phases: ['Taking'] })
  })

  test('looks for what an owner wants, wakes or unparks', async () => {
    const idler = new Idler(orders())
    await raw().insertMany([
      { _id: 'wanted', phase: 'Taken' },
      { _id: 'asleep', phase: 'Taking', lockedAt: new Date(Date.now() + 3_600_000) } as never,
      { _id: 'parked', phase: 'Taking', lockedAt: new Date('9999-12-31'), progress: {} } as never,
    ])
    await idler.listens()
    await owner().setState('wanted', 'Cancelled')
    await eventually(() => expect(idler.steps).toMatchObject([{ id: 'wanted', phase: 'Cancelling' }]))
    await owner().wake('asleep')
    await eventually(() => expect(idler.steps).toMatchObject([{}, { id: 'asleep' }]))
    await owner().unpark('parked')
    await eventually(() => expect(idler.steps).toMatchObject([{}, {}, { id: 'parked' }]))
  })

  test('looks at most 20 times a second in a storm of rings, which costs as few entries', async () => {
    const idler = await new Idler(orders()).listens()
    const startMs = systemClock.monotonicMs()
    const one = owner()
    await Promise.all(Array.from({ length: 200 }, (_, n) => one.insert({ _id: `o${n}` } as never)))
    // A storm of somebody who has no limit.
    await entries().insertMany(Array.from({ length: 200 }, () => ({ lifecycles: ['order'] })))
    await eventually(async () => expect(await raw().countDocuments({ phase: 'Taken' })).toBe(200))
    await one.flush()
    const seconds = (systemClock.monotonicMs() - startMs) / 1_000
    expect(idler.rung.length).toBeLessThanOrEqual(1 + 4 + 16 * seconds + 1)
    const rung = await entries().countDocuments({ 'lifecycles.0': 'order', by: { $exists: true } })
    expect(rung).toBeLessThanOrEqual(4 + 16 * seconds + 1)
  })

  test('takes at the tick what was written by hand, or rung for in vain', async () => {
    const { proxy, client } = await proxied()
    proxy.answerAll(({ name, body }) =>
      name === 'insert' && body['insert'] === DOORBELL_COLLECTION ? { ok: 1, n: 1 } : undefined,
    )
    const idler = await new Idler(orders()).listens()
    await raw().insertOne({ _id: 'by hand', phase: 'Taking' })
    const unheard = new OwnerClient(client.db(database.db.databaseName), order.model)
    await unheard.insert({ _id: 'unheard' } as never)
    await unheard.flush()
    const sent = proxy.seen.filter(({ name, body }) => name === 'insert' && body[name] === DOORBELL_COLLECTION)
    // Rung again where the insert took long.
    expect([1, 2]).toContain(sent.length)
    // Whatever is rung later is heard later.
    await entries().insertOne({ lifecycles: ['order'], phases: ['Packing'] })
    await eventually(() => expect(idler.rung).toHaveLength(2))
    expect([idler.ticks, idler.steps]).toEqual([1, []])
    await idler.replica.tick()
    await eventually(() => expect(idler.steps).toHaveLength(2))
  })

  test('resumes a wait by its own timer, judged by the server: no tick in between', async () => {
    let ticksAtSecondStep = -1
    const idler = new Idler(
      orders(async (doc, step) => {
        const { progress } = (await raw().findOne({ _id: doc._id })) as unknown as { progress: { waitingFor?: string } }
        if (progress.waitingFor === undefined) return step.wait('a moment', { for: '600ms' })
        ticksAtSecondStep = idler.ticks
        return step.moveTo('Taken')
      }),
    )
    await idler.listens()
    await owner().insert({ _id: 'a' } as never)
    // The look that follows a wait by 0.15 s finds it asleep, and nothing else ticks.
    await eventually(() => expect(idler.steps).toMatchObject([{ outcome: 'wait' }, { outcome: 'moveTo' }]))
    expect(ticksAtSecondStep).toBeLessThanOrEqual(2)
    const { progress } = (await raw().findOne({ _id: 'a' })) as unknown as { progress: { history: { at: Date }[] } }
    const [began, ended] = progress.history.map(({ at }) => at.getTime())
    expect(ended! - began!).toBeGreaterThanOrEqual(600)
  })
})

describe('a replica without room', () => {
  test('rings for others when a document is due that it can not take', async () => {
    const held = gate()
    let begun = 0
    const full = new Idler(
      orders(async (_doc, step) => {
        begun += 1
        if (begun === 1) {
          await sleep(600) // after a handler that is over at once it would claim ahead, and have room for more
          return step.moveTo('Packing')
        }
        await held.wait
        return step.moveTo('Taken')
      }),
    )
    const other = new Idler(orders())
    await full.listens()
    await other.listens()
    await raw().insertMany(['a', 'b', 'c', 'd'].map((_id) => ({ _id, phase: 'Taking' })))
    await full.replica.tick()
    await eventually(() => expect(other.rung).toContainEqual({ lifecycles: ['order'], phases: ['Packing'] }))
    await eventually(() => expect(other.steps.map(({ phase }) => phase)).toContain('Packing'))
    held.open()
  })

  test('that stops hands over at once what it had not begun', async () => {
    const held = gate()
    const leaving = new Idler(
      orders(async (_doc, step) => {
        await held.wait
        return step.moveTo('Taken')
      }),
    )
    await leaving.listens()
    await raw().insertMany(['a', 'b', 'c'].map((_id) => ({ _id, phase: 'Taking' })))
    await leaving.replica.tick()
    await eventually(() => expect(leaving.replica.status().held).toBe(2))
    let ticksAtFirstStep = -1
    const staying = new Idler(
      orders(async (_doc, step) => {
        if (ticksAtFirstStep < 0) ticksAtFirstStep = staying.ticks
        return step.moveTo('Taken')
      }),
    )
    // One is queued by the leaving one; the third is there for whoever looks first.
    await raw().deleteOne({ lockedBy: { $exists: false } } as never)
    await staying.listens()
    await leaving.replica.stop()
    await eventually(() => expect(staying.steps).toHaveLength(1))
    expect(ticksAtFirstStep).toBe(1)
    held.open()
  })
})

describe('a doorbell that fails', () => {
  test('is said once, the tick goes on, and it heals', async () => {
    const { proxy, client } = await proxied()
    proxy.answerAll(({ name, body }) =>
      name === 'find' && body['find'] === DOORBELL_COLLECTION
        ? { ok: 0, code: 13, codeName: 'Unauthorized', errmsg: 'not authorized on shop to execute command find' }
        : undefined,
    )
    await database.db.createCollection(DOORBELL_COLLECTION, { capped: true, size: 65_536 })
    await entries().insertOne({ lifecycles: [] })
    const idler = new Idler(orders(), { doorbellDb: client.db(database.db.databaseName) })
    await idler.replica.prepare()
    idler.replica.wakeBetweenTicks()
    await eventually(() => expect(proxy.count('find')).toBeGreaterThan(2))
    expect(idler.replica.status().doorbell).toBe('deaf')
    const line =
      'the doorbell cannot be heard, so new documents wait for the next tick: not authorized on shop to execute command find'
    expect(idler.warnings).toEqual([line])
    await owner().insert({ _id: 'a' } as never)
    await idler.replica.tick()
    await eventually(() => expect(idler.steps).toHaveLength(1))
    proxy.pass()
    await eventually(() => expect(idler.replica.status().doorbell).toBe('capped'))
    expect(idler.warnings).toEqual([line])
    expect(idler.logger.lines.map(({ message }) => message)).toContain('the doorbell can be heard again (capped)')
    await owner().insert({ _id: 'b' } as never)
    await eventually(() => expect(idler.steps).toHaveLength(2))
  })

  test('or is not wanted is not touched', async () => {
    const { proxy, client } = await proxied()
    const db = client.db(database.db.databaseName)
    const lifecycle = orders()
    const idler = new Idler(lifecycle, { db, doorbell: 'off' })
    await idler.replica.prepare()
    idler.replica.wakeBetweenTicks()
    await new OwnerClient(db, order.model, { doorbell: 'off' }).insert({ _id: 'a' } as never)
    await idler.replica.tick()
    await eventually(() => expect(idler.steps).toHaveLength(1))
    await idler.replica.stop()
    expect(proxy.seen.filter(({ name, body }) => body[name] === DOORBELL_COLLECTION)).toEqual([])
    expect(idler.replica.status().doorbell).toBe('off')
  })
})
