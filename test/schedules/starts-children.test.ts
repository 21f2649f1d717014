import { describe, expect, jest, test } from '@jest/globals'
import { flowOf, lifecycleOf, Replica, type RunnableLifecycle, silentLogger } from '../../src/index.js'
import { PARKED_AT } from '../../src/lock/index.js'
import { cancelStep } from '../../src/operations/index.js'
import { starts } from '../../src/schedules/index.js'
import { gate } from '../support/thing.js'
import { useStarted } from './started.js'
import { dueSchedule, dueSince } from './support.js'

jest.setTimeout(30_000)

interface Run {
  _id: string
}
const flow = flowOf<Run>().define({
  name: 'nightly',
  collection: 'Nightly',
  tasks: { load: {}, mail: {}, report: { after: ['load'] } },
})
const part = lifecycleOf<Run>().define({
  name: 'part',
  collection: 'Part',
  child: true,
  phases: { Loading: { next: ['Loaded'] }, Loaded: { rest: true } },
})

describe('a run that has started a document with children', () => {
  const { database, scheduler, replicas, runs } = useStarted()
  const tasks = () => database.db.collection<{ _id: string } & Record<string, any>>('Nightly.tasks')
  const parts = () => database.db.collection<{ _id: string } & Record<string, any>>('Part')
  const ofTask = (key: string) => tasks().findOne({ 'progress.parent.key': key })

  /** A flow that a schedule has started: its task `load` has a child, which runs; `mail` sleeps. */
  async function running() {
    const [began, aborted, end] = [gate(), gate(), gate()]
    const [flows, flowTasks] = flow.handle({
      load: async (_doc, step) => {
        await step.children([part.child('one', {})])
        await step.childrenDone({ rule: 'allDone' })
        return step.wait('its part', { for: '1h' })
      },
      mail: async (_doc, step) => step.wait('an address', { for: '1h' }),
      report: async (_doc, step) => step.moveTo('Succeeded'),
    })
    const loading = part.handle({
      Loading: async (_doc, step) => {
        step.signal.addEventListener('abort', () => aborted.open())
        began.open()
        await end.wait
        return step.wait('the rest')
      },
    })
    const lifecycles = [flows, flowTasks, loading] as unknown as RunnableLifecycle[]
    const replica = new Replica({
      ...{ db: database.db, lifecycles, name: 'nights', logger: silentLogger, doorbell: 'off', grace: '100ms' },
    })
    replicas.push(replica)
    await replica.prepare()
    const one = scheduler(database.db, { tasks: { work: starts(flows, () => ({}) as never) } })
    const due = await dueSchedule(one, database.db)
    const id = `s@${due.toISOString()}`
    await one.replica.runOnce()
    // The flow's run, then its tasks, then their child.
    while ((await parts().findOne({ lockedBy: { $type: 'string' } })) === null) await replica.tick()
    await began.wait
    while ((await ofTask('load'))!['lockedBy'] || (await ofTask('mail'))!['lockedBy']) await replica.tick()
    const models = [...lifecycles, ...one.schedules.lifecycles].map(({ model }) => model)
    const look = async () => {
      await runs().updateMany({ phase: 'Running' }, { $set: { lockedAt: new Date(0) } })
      await one.replica.runOnce()
      return (await one.schedules.runs('s')).find((run) => run._id === id)!
    }
    return { replica, one, id, models, aborted, end, look }
  }

  test('goes on while a step of any of them runs, if it is cancelled: all are stopped, and no other run begins meanwhile', async () => {
    const { replica, one, id, models, aborted, end, look } = await running()
    const system = { db: database.db, models }
    await cancelStep(system, { id, lifecycle: 'schedules.runs' }, { by: 'ana', reason: 'stuck', waitMs: 0 })
    expect(await look()).toMatchObject({ phase: 'Running' })
    const parked = { lockedAt: PARKED_AT, progress: { error: { message: 'cancelled by ana: stuck' } } }
    expect([await ofTask('load'), await ofTask('mail')]).toMatchObject([parked, parked])
    await replica.tick()
    await aborted.wait
    await dueSince(database.db, 's', 500)
    await one.replica.runOnce()
    expect(await one.schedules.runs('s')).toMatchObject([
      { phase: 'Skipped', reason: expect.stringContaining('goes on') },
      { _id: id },
    ])
    end.open()
    await replica.idle()
    expect(await parts().findOne({})).toMatchObject(parked)
    expect(await look()).toMatchObject({ phase: 'Failed', error: { name: 'StepAborted' } })
  })
})
