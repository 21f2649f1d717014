import { describe, expect, test } from '@jest/globals'
import { Test } from '@nestjs/testing'
import { lifecycleOf, Replica, type ReplicaObserver, silentLogger } from '../../src/index.js'
import { hooksObserver } from '../../src/nest/hooks.js'
import { getLifecycleToken, nestLogger, PhaselockModule } from '../../src/nest/index.js'
import { BoundedLog } from '../../src/phases/reporting/bounded-log.js'
import { observers, REPLICA_EVENTS } from '../../src/phases/reporting/observer.js'
import { systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { keepingLogger } from './sample.js'

const database = useDatabase()

const parcel = lifecycleOf<{ _id: string; heavy?: boolean; stolen?: boolean }>()
  .define({
    name: 'parcel',
    collection: 'Parcel',
    phases: { Packing: { next: ['Sent'] }, Sent: { rest: true } },
  })
  .handle({
    async Packing(doc, step) {
      if (doc.heavy) return step.park('too heavy')
      if (doc.stolen)
        await database.db.collection('Parcel').updateOne({ stolen: true }, { $set: { lockedBy: 'thief' } })
      return step.moveTo('Sent')
    },
  })

async function run(options: object, docs: object[]) {
  const logger = keepingLogger()
  const app = await Test.createTestingModule({
    imports: [
      PhaselockModule.forRoot({ db: database.db, tick: false, logger, ...options }),
      PhaselockModule.forFeature([parcel]),
    ],
  }).compile()
  await app.init()
  await app.get(getLifecycleToken(parcel)).owner().insertMany(docs)
  await app.get(Replica).runOnce()
  await app.close()
  return logger
}

describe('hooks', () => {
  test('tell transitions, parked documents and lost leases', async () => {
    const told: unknown[] = []
    const tell = (name: string) => (event: object) => void told.push({ name, ...event })
    await run({ onTransition: tell('transition'), onParked: tell('parked'), onLeaseLost: tell('lost') }, [
      { _id: 'a' },
      { _id: 'b', heavy: true },
      { _id: 'c', stolen: true },
    ])
    await eventually(() => told.length >= 3)
    expect(told).toHaveLength(3)
    expect(told).toContainEqual(
      expect.objectContaining({
        name: 'transition',
        lifecycle: 'parcel',
        id: 'a',
        from: 'Packing',
        to: 'Sent',
        by: 'step',
      }),
    )
    expect(told).toContainEqual({ name: 'parked', lifecycle: 'parcel', id: 'b', phase: 'Packing', reason: 'too heavy' })
    expect(told).toContainEqual(expect.objectContaining({ name: 'lost', lifecycle: 'parcel', id: 'c' }))
  })

  test('that throw or reject are logged and harm nobody, and the observer is told beside them', async () => {
    const seen: string[] = []
    const logger = await run(
      {
        onTransition: async () => {
          throw new Error('rejected')
        },
        onParked: () => {
          throw new Error('thrown')
        },
        observer: { stepEnded: ({ id }: { id: string }) => void seen.push(id) },
      },
      [{ _id: 'a' }, { _id: 'b', heavy: true }],
    )
    await eventually(() => logger.lines.filter((line) => line.message.includes('failed: Error')).length === 2)
    const messages = logger.lines.map((line) => line.message)
    expect(messages).toContain('onTransition failed: Error: rejected')
    expect(messages).toContain('onParked failed: Error: thrown')
    expect(seen.sort()).toEqual(['a', 'b'])
  })
})

test('observers that reject are logged and harm nobody', async () => {
  const rejects = async () => {
    throw new Error('rejected')
  }
  const logger = await run({ observer: { stepEnded: rejects, leaseLost: rejects } }, [
    { _id: 'a' },
    { _id: 'b', stolen: true },
  ])
  for (const name of ['stepEnded', 'leaseLost'])
    await eventually(() =>
      logger.lines.some(({ message }) => message === `an observer's ${name} threw: Error: rejected`),
    )
})

test('the observer is told of every event that there is', () => {
  const told: string[] = []
  const observer = new Proxy({}, { get: (_, name) => () => void told.push(String(name)) }) as ReplicaObserver
  const both = [observer, hooksObserver({}, silentLogger)]
  const one = observers(both, new BoundedLog(silentLogger, systemClock)) as Record<string, (event: object) => void>
  for (const name of REPLICA_EVENTS) one[name]?.({})
  expect(told.sort()).toEqual([...REPLICA_EVENTS].sort())
})

describe("Nest's logger", () => {
  test('gets the fields behind the message, and the stack of an error as its own argument', () => {
    const lines: unknown[][] = []
    const keep =
      (level: string) =>
      (...line: unknown[]) =>
        void lines.push([level, ...line])
    const logger = nestLogger({ log: keep('log'), warn: keep('warn'), error: keep('error') })
    const error = new Error('x')
    logger.debug('not there')
    logger.info('started', { name: 'pod-1', n: 2, none: undefined, deep: { a: 1, why: new Error('no') } })
    logger.warn('slow')
    logger.error('parked: broken', { id: 'a', error })
    logger.error('gone', { id: 'b' })
    expect(lines).toEqual([
      ['log', 'started (name=pod-1 n=2 deep={"a":1,"why":"Error: no"})'],
      ['warn', 'slow'],
      ['error', 'parked: broken (id=a)', error.stack],
      ['error', 'gone (id=b)'],
    ])
  })
})
