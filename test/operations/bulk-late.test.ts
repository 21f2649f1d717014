import { describe, expect, test } from '@jest/globals'
import { Replica, silentLogger } from '../../src/index.js'
import { listPauses, operationLifecycle, pauseWork, resumeWork } from '../../src/operations/index.js'
import { backDate } from '../../src/testing/index.js'
import { useDatabase } from '../support/database.js'
import { gate, ShiftedClock } from '../support/thing.js'
import { ASLEEP, BulkWorld, many } from './bulk-world.js'

describe('a process that works on an operation', () => {
  const database = useDatabase()

  test('and stood still past its lease begins nothing more of its page, which may be another process by now', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(20, ASLEEP))
    const { _id } = await w.begin('wake', { all: true }, { concurrency: 1 })
    const clock = new ShiftedClock()
    const db = w.writingThings((count) => {
      if (count === 2) clock.advance(60_000)
    })
    const late = new Replica({ db: w.db, lifecycles: [operationLifecycle({ db })], logger: silentLogger, clock })
    await late.tick()
    await late.idle()
    expect(await w.things.countDocuments({ lockedAt: new Date(0) })).toBe(3)
    await late.stop()
    await database.db.collection('phaselock.operations').updateMany({}, { $set: { lockedAt: new Date(0) } })
    expect(await w.finish(_id)).toMatchObject({ condition: 'Done', counts: { done: 20 } })
  })

  /** Hangs in its page with the first 12 of 20 done, as if it had been killed there. Others go on, and then it comes back. */
  async function killedWhile(action: 'pause' | 'resume', meanwhile: (w: BulkWorld) => Promise<unknown>) {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(20, ASLEEP))
    if (action === 'resume') await w.run('pause', { all: true })
    const { _id } = await w.begin(action, { all: true }, { concurrency: 1 })
    const [reached, { wait, open }] = [gate(), gate()]
    const worker = w.worker(
      w.pausingThings((count) => {
        if (count < 12) return
        reached.open()
        return wait
      }),
    )
    const late = worker.runOnce()
    await reached.wait
    await meanwhile(w)
    await backDate(database.db.collection('phaselock.operations'), 60_000)
    const ended = await w.finish(_id)
    const paused = await idsPaused(w)
    await meanwhile(w)
    open()
    await late
    await worker.stop()
    return { w, ended, paused }
  }
  const idsPaused = async ({ system }: BulkWorld) =>
    (await listPauses(system)).pauses.flatMap((one) => (one.what === 'document' ? [`${one._id} by ${one.by}`] : []))

  test('pauses nothing again that somebody has resumed: neither whoever repeats its page, nor it when it comes back', async () => {
    const scope = (id: string) => ({ lifecycle: 'thing', id })
    let times = 0
    const { w, ended, paused } = await killedWhile('pause', async ({ system }) => {
      times += 1
      if (times === 2) {
        await resumeWork(system, scope('d00012')) // the one at which it hangs
        return
      }
      await resumeWork(system, scope('d00003'))
      await pauseWork(system, { ...scope('d00004'), by: 'ben' })
    })
    expect(ended).toMatchObject({ condition: 'Done', counts: { seen: 20, done: 20, skipped: 0 } })
    // Of 20 documents one is resumed, and one has a pause of each of two people.
    expect(paused).toHaveLength(20)
    expect(paused.filter((one) => /d0000[34]/.test(one))).toEqual(['d00004 by ana', 'd00004 by ben'])
    expect(await idsPaused(w)).toEqual(paused.filter((one) => one !== 'd00012 by ana'))
  })

  test('resumes nothing again that somebody has paused', async () => {
    const { w, ended, paused } = await killedWhile('resume', ({ system }) =>
      pauseWork(system, { lifecycle: 'thing', id: 'd00003', by: 'ben' }),
    )
    expect(ended).toMatchObject({ condition: 'Done', counts: { seen: 20 } })
    expect(paused).toEqual(['d00003 by ben'])
    expect(await idsPaused(w)).toEqual(paused)
  })
})
