import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import type { Replica, ReplicaOptions, RunnableLifecycle, Step } from '../../src/index.js'
import { LIFECYCLES_COLLECTION, MOST_CANCELS, PARKED_AT } from '../../src/lock/index.js'
import { cancelStep, showDocument } from '../../src/operations/index.js'
import { Schedules } from '../../src/schedules/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, recordingLogger, replicaOf, type Thing, thing, thingOf, things } from '../support/thing.js'

type CreatingStep = Step<'Created' | 'Deleting', Thing>

/** Resolves when the signal aborts. */
const aborted = (signal: AbortSignal) =>
  new Promise<Error>((resolve) => {
    if (signal.aborted) resolve(signal.reason)
    signal.addEventListener('abort', () => resolve(signal.reason), { once: true })
  })

describe('a cancel', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()

  const system = () => ({ db: database.db, models: [thing.model] })
  const entries = () => database.db.collection<Document & { _id: string }>(LIFECYCLES_COLLECTION)
  const insert = (...ids: string[]) => things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))
  const stored = (_id: string) => things(database.db).findOne({ _id })

  function bound(creating: (doc: Thing, step: CreatingStep) => Promise<unknown>, settings: object = {}) {
    return thingOf({ ...settings }).handle({
      Creating: creating as never,
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })
  }

  async function prepared(lifecycle: RunnableLifecycle, options: Partial<ReplicaOptions> = {}) {
    const logger = recordingLogger()
    const replica = replicaOf(database.db, lifecycle, { logger, ...options })
    replicas.push(replica)
    await replica.prepare()
    return { replica, logger }
  }

  /** A handler that tells when it began, and ends as `end` says once its signal has aborted. */
  function waiting(end: (step: CreatingStep, reason: Error) => unknown) {
    const began = gate<Error | undefined>()
    const lifecycle = bound(async (doc, step) => {
      if (doc.n) return step.moveTo('Created')
      began.open(undefined)
      return end(step, await aborted(step.signal))
    })
    return { began, lifecycle }
  }

  test.each<[string, (step: CreatingStep, reason: Error) => unknown]>([
    ['throws its reason', (_step, reason) => Promise.reject(reason)],
    ['throws something else', () => Promise.reject(new Error('socket closed'))],
    ['waits', (step) => step.wait('rain')],
    ['goes on', (step) => step.again({ set: { n: 1 } })],
    ['returns nothing', () => undefined],
  ])('of a step whose handler then %s: parked, with by whom and why, no attempt used', async (how, end) => {
    const { began, lifecycle } = waiting(end)
    const { replica, logger } = await prepared(lifecycle)
    await insert('a')
    await replica.tick()
    await began.wait
    expect(await lifecycle.cancel('a', { by: 'ana', reason: 'stuck' })).toBe('asked')
    await replica.tick()
    await replica.idle()
    const a = (await stored('a'))!
    expect(a).toMatchObject({ phase: 'Creating', lockedAt: PARKED_AT })
    expect(a).not.toHaveProperty('lockedBy')
    expect(a['n']).toBe(how === 'goes on' ? 1 : undefined)
    expect(a['progress']).toMatchObject({ claims: 0, error: { name: 'Cancelled', message: 'cancelled by ana: stuck' } })
    expect(a['progress'].attempts ?? 0).toBe(0)
    expect(a['progress'].history.at(-1)).toMatchObject({ outcome: 'park', reason: 'cancelled by ana: stuck' })
    expect((await showDocument(system(), { id: 'a' })).explanation).toContain(
      "Parked because 'cancelled by ana: stuck'",
    )
    expect(logger.lines.filter(({ message }) => message === 'thing: a step was cancelled by ana: stuck')).toHaveLength(
      1,
    )
    // It is over with that claim: another try runs as ever.
    await things(database.db).updateOne({ _id: 'a' }, { $set: { n: 1 } })
    expect(await lifecycle.unpark('a')).toBe('done')
    await replica.runOnce()
    expect(await stored('a')).toMatchObject({ phase: 'Created' })
  })

  test('tells the handler why, and one that moves its document on has done its work', async () => {
    let reason: Error | undefined
    const { began, lifecycle } = waiting((step, why) => {
      reason = why
      return step.moveTo('Created')
    })
    const { replica } = await prepared(lifecycle)
    await insert('a')
    await replica.tick()
    await began.wait
    await lifecycle.cancel('a', { by: 'ana' })
    await replica.tick()
    await replica.idle()
    expect(reason).toMatchObject({ name: 'StepAborted', why: 'cancelled' })
    expect(reason?.message).toBe('the step was asked to stop: cancelled by ana')
    expect(await stored('a')).toMatchObject({ phase: 'Created' })
  })

  test('keeps the lease until the handler has ended, however long that takes, and says so', async () => {
    const [began, end] = [gate(), gate()]
    const lifecycle = bound(async (_doc, step) => {
      began.open()
      await end.wait // deaf to its signal
      return step.wait('rain')
    })
    const { replica } = await prepared(lifecycle)
    await insert('a')
    await replica.tick()
    await began.wait
    const asked = await cancelStep(system(), { id: 'a' }, { by: 'ana', reason: 'stuck', waitMs: 0 })
    expect(asked).toMatchObject({ lifecycle: 'thing', _id: 'a', ended: false, now: { condition: { kind: 'held' } } })
    expect(asked.now!.explanation).toContain('; its step was cancelled by ana: stuck, and ends when its handler does.')
    await replica.tick()
    const { replica: other } = await prepared(lifecycle)
    await other.runOnce()
    expect((await stored('a'))!['lockedBy']).toMatch(`${replica.identity}#`)
    const waitedFor = cancelStep(system(), { id: 'a' }, { by: 'ben', waitMs: 30_000 })
    await eventually(async () => expect((await entries().findOne())!['cancels']).toMatchObject([{ by: 'ben' }]))
    end.open()
    await replica.idle()
    expect(await waitedFor).toMatchObject({ ended: true, now: { condition: { kind: 'parked' } } })
  })

  test('of a document that nobody holds parks it, if that is asked for; of one that has ended does nothing, so it is still removed', async () => {
    const lifecycle = bound(async (_doc, step) => step.wait('rain', { for: '1h' }))
    const { replica } = await prepared(lifecycle)
    await insert('waits')
    await replica.runOnce()
    await things(database.db).insertMany([
      { _id: 'rests', phase: 'Created' },
      { _id: 'is final', phase: 'Deleted' },
    ])
    expect(await lifecycle.cancel('waits', { by: 'ana' })).toBe('notHeld')
    const cancel = (id: string) => lifecycle.cancel(id, { by: 'ana', evenIdle: true })
    expect([await cancel('waits'), await cancel('rests'), await cancel('is final')]).toEqual([
      'stopped',
      'notHeld',
      'notHeld',
    ])
    await replica.runOnce()
    expect(await stored('waits')).toMatchObject({ lockedAt: PARKED_AT, progress: { error: { name: 'Cancelled' } } })
    expect(await stored('rests')).not.toMatchObject({ lockedAt: PARKED_AT })
    expect(await stored('is final')).toBeNull()
  })

  test('of one document of a batch stops that alone; what waits for a place is parked without its handler', async () => {
    const [began, end] = [gate(), gate()]
    const ran: string[] = []
    const lifecycle = bound(
      async (doc, step) => {
        ran.push(doc._id)
        began.open()
        await end.wait
        return step.moveTo('Created')
      },
      { concurrency: 1 },
    )
    const { replica } = await prepared(lifecycle)
    await insert('a', 'b')
    await replica.tick()
    await began.wait
    const queued = ran[0] === 'a' ? 'b' : 'a'
    if ((await stored(queued))!['lockedBy'] === undefined) return // it was not claimed along
    expect(await lifecycle.cancel(queued, { by: 'ana' })).toBe('asked')
    await replica.tick()
    end.open()
    await replica.idle()
    expect(ran).toHaveLength(1)
    expect(await stored(ran[0]!)).toMatchObject({ phase: 'Created' })
    expect(await stored(queued)).toMatchObject({ phase: 'Creating', lockedAt: PARKED_AT })
  })

  test.each([
    ['by a ring', 'auto'],
    ['by the next look, without a doorbell', 'off'],
  ] as const)('reaches a step, on whichever replica it runs: %s', async (_name, doorbell) => {
    const { began, lifecycle } = waiting((_step, reason) => Promise.reject(reason))
    const { replica } = await prepared(lifecycle, { doorbell })
    const { replica: other } = await prepared(lifecycle, { doorbell })
    await replica.start()
    await other.start()
    await insert('a')
    await began.wait
    expect(await lifecycle.cancel('a', { by: 'ana', reason: 'stuck' })).toBe('asked')
    await eventually(async () => expect(await stored('a')).toMatchObject({ lockedAt: PARKED_AT }), { timeoutMs: 5_000 })
  })

  test('stands when its replica stops', async () => {
    const { began, lifecycle } = waiting((_step, reason) => Promise.reject(reason))
    const { replica } = await prepared(lifecycle, { grace: '0s' })
    await insert('a')
    await replica.tick()
    await began.wait
    await lifecycle.cancel('a', { by: 'ana', reason: 'stuck' })
    await replica.tick()
    await replica.stop()
    expect(await stored('a')).toMatchObject({ lockedAt: PARKED_AT })
  })

  test('fails the run of a schedule for good', async () => {
    const began = gate()
    const schedules = new Schedules({
      db: database.db,
      tasks: {
        sync: async (_args, run) => {
          began.open()
          throw await aborted(run.signal)
        },
      },
    })
    const replica = replicaOf(database.db, schedules.lifecycles[0]!, { lifecycles: schedules.lifecycles })
    replicas.push(replica)
    await replica.prepare()
    await schedules.upsert('s', { task: 'sync', cron: '0 0 1 1 *', retry: { attempts: 5 } })
    const run = await schedules.run('s')
    await replica.tick()
    await eventually(async () => {
      await replica.tick()
      expect(replica.status().running).toBe(1)
    })
    await began.wait
    const models = schedules.lifecycles.map(({ model }) => model)
    const asked = cancelStep({ db: database.db, models }, { id: run }, { by: 'ana', waitMs: 10_000 })
    await eventually(async () => {
      await replica.tick()
      expect(await schedules.findRun(run)).toMatchObject({
        phase: 'Failed',
        error: { message: 'the step was asked to stop: cancelled by ana' },
      })
    })
    expect(await asked).toMatchObject({ ended: true })
  })

  test('is refused where no step runs, nobody knows it, or it is wrong', async () => {
    const { began, lifecycle } = waiting((_step, reason) => Promise.reject(reason))
    const early = lifecycle.attach(database.db)
    await insert('a')
    expect(await early.cancel('a', { by: 'ana' })).toBe('notHeld')
    const { replica } = await prepared(lifecycle)
    expect(await lifecycle.cancel('nobody', { by: 'ana' })).toBe('notFound')
    await expect(cancelStep(system(), { id: 'a' }, { by: 'ana', waitMs: 0 })).rejects.toThrow(
      "thing a can't be cancelled: no step of it runs (it is due); to keep the next one from beginning: phaselock pause",
    )
    await expect(lifecycle.cancel('a', { by: '', reason: 'x'.repeat(501) })).rejects.toThrow(
      'cancel: by: expected a name, got an empty string; reason: expected at most 500 characters',
    )
    await replica.tick()
    await began.wait
    const cancels = Array.from({ length: MOST_CANCELS }, (_, i) => ({
      _id: i,
      claim: 'x~y#1',
      by: 'b',
      at: new Date(),
    }))
    await entries().updateOne({ _id: 'thing' }, { $set: { cancels } } as Document)
    expect(await lifecycle.cancel('a', { by: 'ana' })).toBe('tooMany')
    // Old ones, and what a person has made of them, take no room.
    const old = [7, null, 'x', {}, { _id: 'a', claim: 5 }, ...cancels.map((one) => ({ ...one, at: new Date(0) }))]
    await entries().updateOne({ _id: 'thing' }, { $set: { cancels: old } } as Document)
    await replica.tick()
    expect(await lifecycle.cancel('a', { by: 'ana' })).toBe('asked')
    expect((await entries().findOne({ _id: 'thing' }))!['cancels']).toHaveLength(1)
    await replica.tick()
    await replica.idle()
    expect(await stored('a')).toMatchObject({ lockedAt: PARKED_AT })
  })
})
