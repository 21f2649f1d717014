import { describe, expect, test } from '@jest/globals'
import { Limits, Replica, type RunnableLifecycle } from '../../src/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { recordingLogger, thingOf, thingSpec, thingWith } from '../support/thing.js'

const STEP_MS = 50
/** Work for the whole test, of whoever it is that has the slots at first. */
const BACKLOG = 1_200

describe('slots that many want at all times', () => {
  const ends = useEnds()
  const database = useDatabase()
  const collection = (name: string) => database.db.collection<{ _id: string; phase: string }>(name)
  const created = (name: string) => collection(name).countDocuments({ phase: 'Created' })

  function needing(name: string, ...limits: string[]): RunnableLifecycle {
    const phases = { ...thingSpec.phases, Creating: { next: ['Created', 'Deleting'], limits } }
    return thingWith(
      async (_doc, step) => {
        await sleep(STEP_MS)
        return step.moveTo('Created')
      },
      thingOf({ name, collection: name, phases }),
    )
  }

  async function start(...lifecycles: RunnableLifecycle[]): Promise<void> {
    const replica = new Replica({ db: database.db, lifecycles, logger: recordingLogger() })
    ends.push(() => replica.stop())
    await replica.start()
  }

  const insert = (name: string, count: number) =>
    collection(name).insertMany(Array.from({ length: count }, (_, i) => ({ _id: `${name}${i}`, phase: 'Creating' })))

  test('two replicas with different lifecycles have the only one in turns', async () => {
    await new Limits(database.db).set('one', { slots: 1 })
    await insert('a', BACKLOG)
    await start(needing('a', 'one'))
    await eventually(async () => (await created('a')) > 0)
    await insert('b', BACKLOG)
    await start(needing('b', 'one'))
    await eventually(async () => (await created('b')) > 5)
    const ofA = await created('a')
    await eventually(async () => (await created('a')) > ofA + 5)
    expect(ofA).toBeLessThan(BACKLOG / 2)
  })

  test.each([1, 2])('what needs those of two limits has them beside what needs one: %d replicas', async (replicas) => {
    const limits = new Limits(database.db)
    await limits.set('a', { slots: 2 })
    await limits.set('b', { slots: 2 })
    const lifecycles = () => [needing('x', 'a', 'b'), needing('y', 'a'), needing('z', 'b')]
    await insert('y', BACKLOG)
    await insert('z', BACKLOG)
    for (let i = 0; i < replicas; i += 1) await start(...lifecycles())
    await eventually(async () => (await created('y')) > 5 && (await created('z')) > 5)
    await insert('x', 8)
    await eventually(async () => (await created('x')) === 8)
    expect(await created('y')).toBeLessThan(BACKLOG)
    expect(await created('z')).toBeLessThan(BACKLOG)
  })
})
