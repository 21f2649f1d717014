import { describe, expect, test } from '@jest/globals'
import { mongoLockProvider } from '../../src/locks/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate } from '../support/thing.js'
import { dueSchedule, passForRuns, useSchedulers } from './support.js'

/** A busy machine. */
const PATIENTLY = { timeoutMs: 60_000 }

describe('the lock of a schedule', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()

  test('a manual run and a scheduled one exclude each other; the second is Skipped and says who was running', async () => {
    const hold = gate()
    const one = scheduler(database.db, { name: 'pod-1', tasks: { work: () => hold.wait } })
    const two = scheduler(database.db, { name: 'pod-2', tasks: { work: () => hold.wait } })
    await dueSchedule(one, database.db)
    const running = one.replica.runOnce()
    const first = await eventually(async () => {
      const [run] = await one.schedules.runs('s', { phase: 'Running' })
      return run ?? false
    }, PATIENTLY)
    const manual = await two.schedules.run('s', { by: 'anna' })
    await two.replica.runOnce()
    expect(await two.schedules.findRun(manual)).toMatchObject({
      phase: 'Skipped',
      trigger: 'manual',
      requestedBy: 'anna',
      overlap: { run: (first as { _id: string })._id, by: expect.stringContaining('-') },
      reason: expect.stringContaining(`overlap: the run ${(first as { _id: string })._id}`),
    })
    hold.open()
    await running
    expect(await one.schedules.findRun((first as { _id: string })._id)).toMatchObject({ phase: 'Completed' })
    // And the other way round.
    const free = await two.schedules.run('s')
    await two.replica.runOnce()
    expect(await two.schedules.findRun(free)).toMatchObject({ phase: 'Completed', by: 'pod-2' })
  })

  test('a retry that finds another run at it gives way: it has failed', async () => {
    const hold = gate()
    const work = async (args: { fail?: boolean }) => {
      if (!args.fail) return hold.wait
      throw new Error('no')
    }
    const one = scheduler(database.db, { tasks: { work } })
    const due = await dueSchedule(one, database.db, { args: { fail: true }, retry: { attempts: 2 } })
    await one.replica.runOnce()
    const other = await one.schedules.run('s', { args: {} })
    const running = one.replica.runOnce()
    await eventually(async () => expect((await one.schedules.findRun(other))?.phase).toBe('Running'), PATIENTLY)
    await database.db
      .collection<{ _id: string }>('runs')
      .updateOne({ phase: 'Queued' }, { $set: { retryAt: new Date(0), lockedAt: new Date(0) } })
    await one.replica.tick()
    await eventually(async () => {
      expect(await one.schedules.findRun(`s@${due.toISOString()}`)).toMatchObject({
        phase: 'Failed',
        error: { message: 'no' },
        reason: expect.stringContaining(`no further try: overlap: the run ${other}`),
      })
    }, PATIENTLY)
    hold.open()
    await running
  })

  test('maxInstances holds across replicas', async () => {
    const hold = gate()
    let most = 0
    let now = 0
    const work = async () => {
      now += 1
      most = Math.max(most, now)
      await hold.wait
      now -= 1
    }
    const pods = ['a', 'b', 'c'].map((name) => scheduler(database.db, { name, tasks: { work } }))
    await pods[0]!.schedules.upsert('s', { task: 'work', cron: '0 0 1 1 *', maxInstances: 2 })
    for (let i = 0; i < 3; i += 1) await pods[0]!.schedules.run('s')
    const running = Promise.all(pods.map((pod) => pod.replica.runOnce()))
    await eventually(
      async () => expect(await pods[0]!.schedules.runs('s', { phase: 'Skipped' })).toHaveLength(1),
      PATIENTLY,
    )
    await eventually(() => expect(now).toBe(2), PATIENTLY)
    hold.open()
    await running
    expect(most).toBe(2)
    expect(await pods[0]!.schedules.runs('s', { phase: 'Completed' })).toHaveLength(2)
  })

  test('a run that another replica takes over enters the lock that carries its id, with a higher fence', async () => {
    const fences: number[] = []
    const lost = gate()
    const dead = scheduler(database.db, {
      name: 'dead',
      tasks: {
        work: async (_args: unknown, run: { fence: number }) => {
          fences.push(run.fence)
          await lost.wait
        },
      },
    })
    const heir = scheduler(database.db, {
      name: 'heir',
      tasks: { work: async (_args: unknown, run: { fence: number }) => void fences.push(run.fence) },
    })
    await dueSchedule(dead, database.db)
    void dead.replica.runOnce().catch(() => undefined)
    await eventually(() => expect(fences).toHaveLength(1), PATIENTLY)
    // Its lease ends as after a kill -9; its lock would last for half an hour.
    await passForRuns(database.db, 60_000)
    await heir.replica.runOnce()
    expect(fences).toHaveLength(2)
    expect(fences[1]).toBeGreaterThan(fences[0]!)
    expect(await heir.schedules.runs('s')).toMatchObject([
      { phase: 'Completed', by: 'heir', lost: 1, lockFence: fences[1] },
    ])
    // What the first one still does touches neither the run nor the lock of a later one.
    const next = await heir.schedules.run('s')
    lost.open()
    // Either of them runs it.
    await eventually(async () => {
      await heir.replica.tick()
      expect(await heir.schedules.findRun(next)).toMatchObject({ phase: 'Completed' })
    }, PATIENTLY)
    await dead.replica.idle()
    expect((await heir.schedules.runs('s')).map((run) => run.phase)).toEqual(['Completed', 'Completed'])
  })

  const LOCKS = 'shedLock'
  test.each([
    ['an operator frees the lock', () => mongoLockProvider(database.db).release('scheduler_lock:s')],
    ['somebody deletes the record of the lock', () => database.db.collection(LOCKS).deleteMany({})],
  ])(
    '%s: the run that had it is stopped, long before its lock would be extended, so that no two run',
    async (_how, free) => {
      const begun = gate()
      const stopped: unknown[] = []
      const work = (_args: unknown, run: { signal: AbortSignal }) =>
        new Promise((resolve) => {
          run.signal.addEventListener('abort', () => resolve(stopped.push(run.signal.reason)))
          begun.open()
        })
      const one = scheduler(database.db, { tasks: { work } })
      await dueSchedule(one, database.db)
      const running = one.replica.runOnce()
      await begun.wait
      await free()
      await eventually(() => expect(stopped).toHaveLength(1))
      await running
      expect(await one.schedules.runs('s')).toMatchObject([{ phase: 'Failed', error: { name: 'RunLockLost' } }])
    },
  )

  test('a run that kills its replicas has failed after three', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    const client = scheduler(database.db)
    await dueSchedule({ ...one, replica: client.replica }, database.db)
    await client.replica.runOnce()
    await database.db
      .collection('runs')
      .updateMany({}, { $set: { phase: 'Running', startedAt: new Date(), by: 'gone', progress: { claims: 3 } } })
    await one.replica.runOnce()
    expect(await one.schedules.runs('s')).toMatchObject([{ phase: 'Failed', lost: 3, error: { name: 'ReplicasLost' } }])
  })

  test('a callback that was interrupted runs again, the task does not', async () => {
    const ran: unknown[] = []
    const told: unknown[] = []
    const work = { run: async () => void ran.push(1), onSuccess: () => void told.push(1) }
    const one = scheduler(database.db, { tasks: { work } })
    await dueSchedule(one, database.db)
    await one.replica.runOnce()
    await database.db
      .collection('runs')
      .updateMany({}, { $set: { phase: 'Running', lockedAt: new Date(0), 'progress.claims': 1 } })
    await one.replica.runOnce()
    expect([ran, told]).toEqual([[1], [1, 1]])
    expect(await one.schedules.runs('s')).toMatchObject([{ phase: 'Completed' }])
  })
})
