import { afterEach, describe, expect, test } from '@jest/globals'
import { type AlongsideContext, Replica, type ReplicaOptions, type Woken } from '../../src/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { type CreatingHandler, gate, recordingLogger, thing, things } from '../support/thing.js'

const database = useDatabase()
let opened: Replica[] = []
afterEach(async () => {
  await Promise.all(opened.map((replica) => replica.stop()))
  opened = []
})

/** A started replica of things, and what works beside it get. Its ticks find nothing that sleeps. */
async function started(Creating: CreatingHandler, name = 'r', more: Partial<ReplicaOptions> = {}) {
  const { promise, resolve } = Promise.withResolvers<AlongsideContext>()
  const lifecycle = thing
    .handle({ Creating, Deleting: async (_doc, step) => step.moveTo('Deleted') })
    .runAlongside(async (context) => resolve(context))
  const woken: Woken[] = []
  const observer = { woken: (event: Woken) => void woken.push(event) }
  const replica = new Replica({ db: database.db, lifecycles: [lifecycle], name, observer, grace: '0s', ...more })
  opened.push(replica)
  await replica.start()
  return { replica, context: await promise, woken }
}

/** Waits for an hour, and then for ever: each step is counted. */
function patient(steps: string[] = []) {
  const Creating: CreatingHandler = async (doc, step) => {
    steps.push(doc._id)
    return step.wait('the world', { for: '1h' })
  }
  return { steps, Creating }
}

const asleep = (id: string) =>
  things(database.db).findOne({ _id: id, lockedBy: null, 'progress.waitingFor': 'the world' })

const untilAsleep = (...ids: string[]) =>
  eventually(async () => {
    for (const id of ids) expect(await asleep(id)).not.toBeNull()
  })

const insert = (...ids: string[]) => things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))

describe('what runs beside a lifecycle', () => {
  test('begins with a replica that works, not with one that is ticked by hand, and ends with it', async () => {
    const events: string[] = []
    const lifecycle = thing
      .handle({
        Creating: async (_doc, step) => step.moveTo('Created'),
        Deleting: async (_doc, step) => step.moveTo('Deleted'),
      })
      .runAlongside(async ({ signal, replica, model }) => {
        events.push(`${replica.split('~')[0]} ${model.name} begins`)
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        events.push('ends')
      })
    const byHand = new Replica({ db: database.db, lifecycles: [lifecycle], name: 'by-hand' })
    await byHand.runOnce()
    await byHand.stop()
    expect(events).toEqual([])
    const replica = new Replica({ db: database.db, lifecycles: [lifecycle], name: 'works' })
    await replica.start()
    await eventually(() => expect(events).toEqual(['works thing begins']))
    await replica.stop()
    expect(events).toEqual(['works thing begins', 'ends'])
  })

  test('neither delays nor fails a replica: one that throws is logged, one that never ends is left behind', async () => {
    const logger = recordingLogger()
    const lifecycle = thing
      .handle({
        Creating: async (_doc, step) => step.moveTo('Created'),
        Deleting: async (_doc, step) => step.moveTo('Deleted'),
      })
      .runAlongside(() => new Promise(() => undefined))
      .runAlongside(() => {
        throw new Error('no such cluster')
      })
    const replica = new Replica({ db: database.db, lifecycles: [lifecycle], logger, grace: '0s' })
    await replica.start()
    await insert('a')
    await eventually(async () =>
      expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created' }),
    )
    await eventually(() => expect(logger.lines.map(({ message }) => message).join('\n')).toContain('no such cluster'))
    await replica.stop()
    expect(logger.lines.map(({ message }) => message).join('\n')).toContain('left behind')
  })
})

describe('wake', () => {
  test('steps a sleeping document at once; one that rests, is parked or unknown stays', async () => {
    const { Creating, steps } = patient()
    const { context, woken } = await started(Creating)
    await insert('a')
    await untilAsleep('a')
    const far = new Date('9999-12-31')
    await things(database.db).insertMany([
      { _id: 'rests', phase: 'Created', lockedAt: new Date('2500-01-01') },
      { _id: 'final', phase: 'Deleted', lockedAt: new Date('2500-01-01') },
      { _id: 'parked', phase: 'Creating', lockedAt: far },
    ])
    const others = await things(database.db)
      .find({ _id: { $ne: 'a' } })
      .toArray()
    context.wake(['a', 'rests', 'final', 'parked', 'nobody'])
    await eventually(() => expect(steps).toEqual(['a', 'a']))
    await untilAsleep('a')
    expect(
      await things(database.db)
        .find({ _id: { $ne: 'a' } })
        .toArray(),
    ).toEqual(others)
    expect(woken).toEqual([{ lifecycle: 'thing', count: 1, source: undefined }])
  })

  test('of a held document is not lost: it comes when the document has been let go', async () => {
    const first = gate()
    const steps: number[] = []
    const { context } = await started(async (_doc, step) => {
      steps.push(step.fence)
      if (steps.length > 1) return step.moveTo('Created')
      await first.wait
      return step.wait('the world', { for: '1h' })
    })
    await insert('a')
    await eventually(() => expect(steps).toHaveLength(1))
    context.wake(['a'])
    await eventually(async () => expect(await things(database.db).findOne({ _id: 'a', lockedBy: null })).toBeNull())
    first.open()
    await eventually(async () =>
      expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created' }),
    )
    expect(steps).toHaveLength(2)
  })

  test('of a held document is forgotten when a later step of it has begun: that one has seen the news', async () => {
    const [first, second] = [gate(), gate()]
    const steps: string[] = []
    const { context } = await started(async (doc, step) => {
      steps.push(doc._id)
      const mine = steps.filter((id) => id === doc._id).length
      if (doc._id !== 'a') return step.wait('the world', { for: '1h' })
      if (mine > 2) return step.park('a third step')
      await (mine === 1 ? first : second).wait
      return mine === 1 ? step.again() : step.wait('the world', { for: '1h' })
    })
    await insert('a', 'b')
    await eventually(() => expect(steps).toContain('a'))
    await untilAsleep('b')
    context.wake(['a', 'b'])
    // Both go in one batch: once b has been stepped again, the wake has met the first step of a.
    await eventually(() => expect(steps.filter((id) => id === 'b')).toHaveLength(2))
    first.open()
    await eventually(() => expect(steps.filter((id) => id === 'a')).toHaveLength(2))
    second.open()
    await untilAsleep('a')
    expect(steps.filter((id) => id === 'a')).toHaveLength(2)
  })

  test('by three replicas that hear the same news is one step', async () => {
    const { Creating, steps } = patient()
    const replicas = await Promise.all(['r1', 'r2', 'r3'].map((name) => started(Creating, name)))
    const ids = Array.from({ length: 30 }, (_, i) => `t${i}`)
    await insert(...ids)
    await untilAsleep(...ids)
    expect(steps).toHaveLength(30)
    const news = { source: 'a cluster', version: 100 }
    for (const { context } of replicas) context.wake(ids, news)
    await eventually(() => expect(steps).toHaveLength(60))
    await untilAsleep(...ids)
    // The same once more, late: a replica that was slow to hear it. And then something new.
    for (const { context } of replicas) context.wake(ids, news)
    replicas[0]!.context.wake(['t7'], { source: 'a cluster', version: 101 })
    await eventually(() => expect(steps).toHaveLength(61))
    expect(steps.at(-1)).toBe('t7')
    await untilAsleep('t7')
    // One alone hears it: those that fall to another replica too are stepped.
    replicas[1]!.context.wake(ids, { source: 'a cluster', version: 102 })
    await eventually(() => expect(steps).toHaveLength(91))
    await untilAsleep(...ids)
    const woken = replicas.flatMap((one) => one.woken).reduce((sum, { count }) => sum + count, 0)
    expect(woken).toBe(61)
    expect(await things(database.db).findOne({ _id: 't7' })).toMatchObject({
      progress: { heard: { source: 'a cluster', version: 102, at: expect.any(Date) } },
    })
  })

  test("leaves a field of the owner's alone that is called like ours", async () => {
    const { Creating } = patient()
    const { context, woken } = await started(Creating)
    const odd = { _id: 'odd', phase: 'Creating', lockedAt: new Date('2500-01-01'), progress: 'half done' }
    await things(database.db).insertOne(odd)
    await insert('a')
    await untilAsleep('a')
    context.wake(['odd', 'a'], { source: 'a cluster', version: 1 })
    await eventually(() => expect(woken).toHaveLength(1))
    expect(await things(database.db).findOne({ _id: 'odd' })).toEqual(odd)
  })
})

test('look finds what came due in another way, here and on others', async () => {
  const { Creating, steps } = patient()
  const [{ context }] = await Promise.all([started(Creating, 'r1'), started(Creating, 'r2')])
  await insert('a')
  await untilAsleep('a')
  await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedAt: new Date(0) } })
  context.look()
  await eventually(() => expect(steps).toHaveLength(2))
})
