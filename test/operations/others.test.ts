import { describe, expect, test } from '@jest/globals'
import { mongoLockProvider, openLockProvider } from '../../src/locks/index.js'
import {
  heldLock,
  isOver,
  listLocks,
  listRuns,
  listSchedules,
  pauseSchedules,
  releaseLock,
  removeRegion,
  removeSchedule,
  resumeSchedules,
  type System,
  setLockTimeout,
  setSchedule,
  startRun,
  waitForRun,
} from '../../src/operations/index.js'
import { useSchedulers } from '../schedules/support.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, thing, thingWith } from '../support/thing.js'

describe('operations on schedules, locks, regions and lockTimeouts', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()
  const system = (): System => ({ db: database.db, models: [thing.model] })
  const failureOf = (failing: Promise<unknown>) =>
    failing.then(
      () => expect('no error').toBe('an error'),
      (error) => error,
    )

  test('schedules and runs', async () => {
    const { replica } = scheduler(database.db, { name: 'pod-1', tasks: { sync: async () => undefined } })
    for (const id of ['a', 'b']) {
      expect(await setSchedule(system(), id, { task: 'sync', cron: '0 0 1 1 *' }, 'anna')).toBe('created')
    }
    await replica.runOnce()
    expect(await listSchedules(system(), { limit: 1 })).toMatchObject({ schedules: [{ _id: 'a' }], more: true })
    expect(await listSchedules(system(), { after: 'a' })).toMatchObject({ schedules: [{ _id: 'b' }], more: false })
    expect(await pauseSchedules(system(), undefined, { by: 'anna' })).toBe(2)
    expect(await resumeSchedules(system(), 'a', 'anna')).toBe(1)
    const id = await startRun(system(), 'a', { by: 'anna' })
    const queued = await waitForRun(system(), id, 0)
    expect([queued.phase, isOver(queued)]).toEqual(['Queued', false])
    await replica.start()
    expect(await waitForRun(system(), id, 30_000)).toMatchObject({ phase: 'Completed', by: 'pod-1' })
    expect(await listRuns(system(), 'a')).toMatchObject({ statistics: { runs: 1 }, runs: [{ requestedBy: 'anna' }] })
    await removeSchedule(system(), 'b')
    const none = [
      () => removeSchedule(system(), 'b'),
      () => pauseSchedules(system(), 'b', { by: 'anna' }),
      () => listRuns(system(), 'b'),
      () => startRun(system(), 'b', { by: 'anna' }),
    ]
    for (const failing of none) {
      expect(await failureOf(failing())).toMatchObject({
        name: 'NotFound',
        obstacle: { reason: 'noSchedule', name: 'b' },
      })
    }
  })

  test('locks: one is freed only as it was seen', async () => {
    const locks = await openLockProvider({ provider: 'mongodb', env: {} }, database.db)
    const provider = mongoLockProvider(database.db, { name: 'api-1' })
    const lock = (await provider.lock({ name: 'nightly', lockAtMostFor: '1h' }))!
    const seen = await heldLock(locks, 'nightly')
    expect(await listLocks(locks)).toEqual([seen])
    expect(seen).toMatchObject({ name: 'nightly', lockedBy: lock.lockedBy, fence: lock.fence, held: true })
    expect(await releaseLock(locks, seen)).toMatchObject({ name: 'nightly' })
    expect(await failureOf(releaseLock(locks, seen))).toMatchObject({ obstacle: { reason: 'lockChangedHands' } })
    expect(await failureOf(heldLock(locks, 'nightly'))).toMatchObject({
      name: 'NotFound',
      obstacle: { reason: 'noLock' },
    })
    expect(await listLocks(locks)).toEqual([])
    expect(await listLocks(locks, true)).toMatchObject([{ name: 'nightly', held: false }])
  })

  test('a Region that documents name stays, unless by force', async () => {
    const regions = database.db.collection<{ _id: string }>('Region')
    await regions.insertOne({ _id: 'eu-1' })
    await database.db.collection('Thing').insertMany([
      { phase: 'Creating', region: 'eu-1' },
      { phase: 'Deleted', placed: { region: 'eu-1' } },
    ])
    const uses = [{ collection: 'Thing', placed: 0, named: 1 }]
    expect(await failureOf(removeRegion(system(), 'eu-1'))).toMatchObject({
      name: 'Refused',
      obstacle: { reason: 'regionInUse', region: 'eu-1', uses },
    })
    expect(await removeRegion(system(), 'eu-1', { force: true })).toEqual({ removed: { _id: 'eu-1' }, inUse: uses })
    expect(await failureOf(removeRegion(system(), 'eu-1'))).toMatchObject({ name: 'NotFound' })
  })

  test('lockTimeout: refused where it is no duration, or nobody has run it; one change at a time', async () => {
    const set = (lockTimeout: string) => setLockTimeout(system(), 'thing', lockTimeout)
    expect(await failureOf(set('30'))).toMatchObject({ obstacle: { reason: 'invalidDuration', got: '30' } })
    expect(await failureOf(set('1m'))).toMatchObject({ obstacle: { reason: 'noLifecycle', name: 'thing' } })
    await replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    ).prepare()
    expect(await set('1m')).toMatchObject({
      kind: 'changed',
      wasMs: 30_000,
      lockTimeoutMs: 60_000,
      sleepsEncodedAnew: 0,
    })
    expect(await failureOf(set('2m'))).toMatchObject({ name: 'Refused', obstacle: { reason: 'changeUnderWay' } })
  })
})
