import { describe, expect, test } from '@jest/globals'
import { LeaseLost, Replica } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { type CreatingHandler, recordingObserver, things, thingWith } from '../support/thing.js'

describe('a checkpoint', () => {
  const database = useDatabase()

  async function run(handler: CreatingHandler) {
    const { db } = database
    const observer = recordingObserver()
    const replica = new Replica({ db, lifecycles: [thingWith(handler)], observer })
    await things(db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    await replica.stop()
    return { document: await things(db).findOne({ _id: 'a' }), losses: observer.losses }
  }

  test("that the handler forgot to wait for doesn't cost the step its outcome", async () => {
    const { document, losses } = await run(async (_doc, step) => {
      void step.checkpoint({ n: 7 })
      return step.moveTo('Created')
    })
    expect(document).toMatchObject({ phase: 'Created', n: 7 })
    expect(losses).toEqual([])
  })

  test('beside another: both are stored, in their order', async () => {
    const { document } = await run(async (_doc, step) => {
      await Promise.all([step.checkpoint({ n: 1, effects: ['x'] }), step.checkpoint({ n: 2 })])
      return step.moveTo('Created')
    })
    expect(document).toMatchObject({ phase: 'Created', n: 2, effects: ['x'] })
  })

  test('that nobody waits for, on a lease that was taken: nothing is stored, and the process lives on', async () => {
    const { document, losses } = await run(async (_doc, step) => {
      await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedBy: 'other~1#1.1' } })
      void step.checkpoint({ n: 7 })
      return step.moveTo('Created')
    })
    expect(document).toMatchObject({ phase: 'Creating', lockedBy: 'other~1#1.1' })
    expect(document).not.toHaveProperty('n')
    expect(losses).toMatchObject([{ how: 'refused' }])
  })

  test('on a lease that was taken throws LeaseLost to the handler that waits for it', async () => {
    let thrown: unknown
    await run(async (_doc, step) => {
      await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedBy: 'other~1#1.1' } })
      await step.checkpoint({ n: 7 }).catch((error: unknown) => {
        thrown = error
      })
      return step.moveTo('Created')
    })
    expect(thrown).toBeInstanceOf(LeaseLost)
  })
})
