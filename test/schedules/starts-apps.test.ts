import { afterEach, expect, test } from '@jest/globals'
import type { Db } from 'mongodb'
import { lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import { Schedules, starts } from '../../src/schedules/index.js'
import { useDatabase } from '../support/database.js'

const night = lifecycleOf<{ _id: string }>().define({
  name: 'night',
  collection: 'Night',
  phases: { Counting: { next: ['Counted'] }, Counted: { rest: true } },
})
/** One object for all apps of this process: attached to the database of the one that was made last. */
const nights = night.handle({ Counting: async (_doc, step) => step.moveTo('Counted') })
const nightly = starts(nights, () => ({}))

const first = useDatabase()
const second = useDatabase()
const replicas: Replica[] = []
afterEach(async () => {
  await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
})

function app(db: Db) {
  const schedules = new Schedules({ db, tasks: { nightly }, logger: silentLogger })
  const replica = new Replica({ db, lifecycles: [nights, ...schedules.lifecycles], logger: silentLogger })
  replicas.push(replica)
  return { schedules, replica }
}

test('of two apps in one process, each starts its documents in its own database', async () => {
  const apps = [app(first.db), app(second.db)]
  for (const { schedules, replica } of apps) {
    await replica.prepare()
    await schedules.upsert('s', { task: 'nightly', interval: '1d' })
    const run = await schedules.run('s')
    await replica.runOnce()
    expect(await schedules.findRun(run)).toMatchObject({ phase: 'Completed' })
  }
  for (const { db } of [first, second]) expect(await db.collection('Night').countDocuments()).toBe(1)
})
