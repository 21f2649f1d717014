import { describe, expect, test } from '@jest/globals'
import { lifecycleOf, OverlappingLifecycles, Replica } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { recordingLogger } from '../support/thing.js'

interface Doc {
  _id: string
}

/** A lifecycle of one working and one resting phase. */
const lifecycle = (name: string, collection: string, working: string, resting: string) =>
  lifecycleOf<Doc>()
    .define({ name, collection, phases: { [working]: { next: [resting] }, [resting]: { rest: true } } } as never)
    .handle({
      [working]: async (_doc: never, step: { moveTo(phase: string): unknown }) => step.moveTo(resting),
    } as never)

describe('two lifecycles on one collection', () => {
  const database = useDatabase()
  const replica = (...lifecycles: ReturnType<typeof lifecycle>[]) => {
    const logger = recordingLogger()
    return Object.assign(new Replica({ db: database.db, lifecycles, logger }), { lines: logger.lines })
  }

  test('are refused when a phase belongs to both, with its name', () => {
    const make = () => replica(lifecycle('a', 'Shared', 'Making', 'Made'), lifecycle('b', 'Shared', 'Making', 'Ready'))
    expect(make).toThrow(OverlappingLifecycles)
    expect(make).toThrow(/'a' and 'b' both work on Shared and both have the phase 'Making'; rename them/)
  })

  test('of one name are refused, whatever their collections', () => {
    const make = () => replica(lifecycle('a', 'One', 'Making', 'Made'), lifecycle('a', 'Two', 'Making', 'Made'))
    expect(make).toThrow(/two lifecycles are called 'a'/)
  })

  test('that do not overlap share it: each moves its own documents, and neither calls the other’s phases unknown', async () => {
    const [a, b] = [lifecycle('a', 'Shared', 'Making', 'Made'), lifecycle('b', 'Shared', 'Painting', 'Painted')]
    const both = replica(a, b)
    const documents = database.db.collection<{ _id: string; phase: string }>('Shared')
    await documents.insertMany([
      { _id: '1', phase: 'Making' },
      { _id: '2', phase: 'Painting' },
      { _id: '3', phase: 'Paintnig' },
    ])
    await both.runOnce()
    expect(await documents.distinct('phase')).toEqual(['Made', 'Painted', 'Paintnig'])
    const warned = both.lines.filter((line) => line.message.includes('unknown phase')).map((line) => line.message)
    expect(warned).toHaveLength(2)
    for (const message of warned) expect(message).toContain("unknown phase 'Paintnig'")
  })

  test("the same in two processes: another's registered phases are refused at start, and nothing is registered", async () => {
    await replica(lifecycle('a', 'Shared', 'Making', 'Made')).runOnce()
    const second = replica(lifecycle('b', 'Shared', 'Making', 'Ready'))
    const failed = await second.start().catch((error) => error)
    expect(failed).toBeInstanceOf(OverlappingLifecycles)
    expect(failed.message).toMatch(/where lifecycle 'a' is registered and has the phase 'Making' too/)
    expect(failed.message).toContain(`db.getCollection('phaselock.lifecycles').deleteOne({ _id: 'a' })`)
    expect(await database.db.collection('phaselock.lifecycles').distinct('_id')).toEqual(['a'])
    // Phases of its own, and it may start; the first one, restarted, too; and each knows the other's phases.
    const third = replica(lifecycle('c', 'Shared', 'Painting', 'Painted'))
    await database.db.collection('Shared').insertOne({ phase: 'Making' })
    await third.runOnce()
    expect(third.lines.filter((line) => line.level === 'warn')).toEqual([])
    await replica(lifecycle('a', 'Shared', 'Making', 'Made')).runOnce()
  })

  test('one that an older version registered without its phases is nobody’s obstacle', async () => {
    const registered = database.db.collection<{ _id: string; collection: string; lockTimeout: number }>(
      'phaselock.lifecycles',
    )
    await registered.insertOne({ _id: 'old', collection: 'Shared', lockTimeout: 30_000 })
    await replica(lifecycle('a', 'Shared', 'Making', 'Made')).prepare()
  })
})
