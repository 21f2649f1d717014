import { afterEach, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { Limits, lifecycleOf, type Replica } from '../../src/index.js'
import { LIMITS_COLLECTION } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { recordingLogger, replicaOf, type Thing, things } from '../support/thing.js'

let replica: Replica | undefined
afterEach(() => replica?.stop())
const database = useDatabase()

const lifecycle = lifecycleOf<Thing>()
  .define({
    name: 'thing',
    collection: 'Thing',
    phases: {
      Creating: { next: ['Created'], limits: ['api'], entry: true },
      Created: { rest: true },
      Mending: { next: ['Created'], entry: true },
    },
  })
  .handle({
    Creating: async (_doc, step) => step.moveTo('Created'),
    Mending: async (_doc, step) => step.moveTo('Created'),
  })

// A command that fails because of it would hold up the whole lifecycle, and read as an outage of the database.
test.each(['slots', 'rate', 'holders', 'waiting', 'bucket', 'paused', 'declared'])(
  'a limit whose %s a person has damaged fails no command, and holds up nothing that needs none',
  async (field) => {
    const logger = recordingLogger()
    replica = replicaOf(database.db, lifecycle, { logger })
    const limits = database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION)
    const odd = [null, 'x', [], [5], [{}], {}, { starts: 'x' }, { starts: 5, perMs: 0 }, true, -1, Number.NaN]
    for (const value of odd) {
      await limits.deleteMany()
      await limits.insertOne({ _id: 'api', slots: 3, [field]: value })
      await things(database.db).insertMany([
        { _id: 'limited', phase: 'Creating' },
        { _id: 'free', phase: 'Mending' },
      ])
      await replica.runOnce()
      expect(await things(database.db).findOne({ _id: 'free' })).toMatchObject({ phase: 'Created' })
      await things(database.db).deleteMany()
    }
    expect(logger.lines.filter(({ level }) => level === 'error')).toEqual([])
  },
)

test.each([[[5]], [true], [new Date(5)]])('a limit of %p slots has none, and that is told', async (slots) => {
  const logger = recordingLogger()
  replica = replicaOf(database.db, lifecycle, { logger })
  await database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION).insertOne({ _id: 'api', slots })
  await things(database.db).insertOne({ _id: 'limited', phase: 'Creating' })
  await replica.runOnce()
  expect(await new Limits(database.db).list()).toMatchObject([{ name: 'api', slots: 0 }])
  expect(logger.lines.map(({ message }) => message).join()).toContain('limit api: it has 0 slots')
})
