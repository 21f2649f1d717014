import { describe, expect, test } from '@jest/globals'
import { lifecycleOf, Replica, TASK_LOCK_INIT_TIME } from '../../src/index.js'
import { KNOWN_FOR_MS } from '../../src/lock/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { withFailingClaims } from '../support/failing-claims.js'
import { recordingLogger } from '../support/thing.js'

interface Thing {
  _id: string
  state?: 'Running' | 'Deleted'
  n: number
}

const thing = lifecycleOf<Thing>().define({
  name: 'thing',
  collection: 'Thing',
  phases: {
    Creating: { next: ['Created'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  rules: [{ when: 'Deleted', from: ['Creating', 'Created'], moveTo: 'Deleting' }],
})

describe('a replica', () => {
  const database = useDatabase()

  test('takes a document that has only a phase through six recorded steps to Created', async () => {
    const { db } = database
    const bound = thing.handle({
      async Creating(doc, step) {
        const n = (doc.n ?? 0) + 1
        return n < 6 ? step.again({ set: { n }, step: `s${n + 1}` }) : step.moveTo('Created', { set: { n } })
      },
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })
    const replica = new Replica({ db, lifecycles: [bound], name: 'one' })
    await db.collection<{ _id: string; phase: string }>('Thing').insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    const doc = await db.collection<{ _id: string; phase: string }>('Thing').findOne({ _id: 'a' })
    expect(doc).toMatchObject({ phase: 'Created', n: 6, lockedAt: TASK_LOCK_INIT_TIME })
    expect(doc).not.toHaveProperty('lockedBy')
    const history = (doc as never as { progress: { history: { outcome: string; step: string | null }[] } }).progress
      .history
    expect(history.map((entry) => entry.outcome)).toEqual(['again', 'again', 'again', 'again', 'again', 'moveTo'])
    expect(history.map((entry) => entry.step)).toEqual([null, 's2', 's3', 's4', 's5', 's6'])
    await bound.owner().setState('a', 'Deleted')
    const counts = await replica.runOnce()
    expect(counts).toMatchObject({ ruled: 1, removed: 1 })
    expect(await db.collection('Thing').countDocuments()).toBe(0)
    await replica.stop()
  })

  test('that was left alone for longer than it may go by the lockTimeout that it has read: one run does all the same', async () => {
    const { db } = database
    const bound = thing.handle({
      Creating: async (_doc, step) => step.moveTo('Created'),
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })
    const replica = new Replica({ db, lifecycles: [bound] })
    await replica.prepare()
    await sleep(KNOWN_FOR_MS + 100)
    await db.collection<{ _id: string; phase: string }>('Thing').insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    expect(await bound.find('a')).toMatchObject({ phase: 'Created' })
    await replica.stop()
  })

  test('whose claims fail: one run tries again each second, and after five of them says what they fail with', async () => {
    const bound = thing.handle({
      Creating: async (_doc, step) => step.moveTo('Created'),
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })
    let claims = 0
    let fails = true
    const db = withFailingClaims(database.db, 'Thing', () => {
      claims += 1
      return fails
    })
    const replica = new Replica({ db, lifecycles: [bound], logger: recordingLogger() })
    await database.db.collection<{ _id: string; phase: string }>('Thing').insertOne({ _id: 'a', phase: 'Creating' })
    await expect(replica.runOnce()).rejects.toThrow(
      /^something is due, and claims of it have failed for 5 s: thing: MongoServerError: out of disk space$/,
    )
    expect(claims).toBe(5)

    const run = replica.runOnce()
    await eventually(() => claims > 5)
    fails = false
    await run
    expect(claims).toBeLessThanOrEqual(10)
    expect(await bound.find('a')).toMatchObject({ phase: 'Created' })
    await replica.stop()
  })
})
