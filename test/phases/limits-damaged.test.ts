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

test.each<[string, unknown, string, number]>([
  ['slots', [5], 'slots: expected a whole number from 0 to 1000000, got an array; it counts as 0 slots', 0],
  ['slots', true, 'slots: expected a whole number from 0 to 1000000, got a boolean; it counts as 0 slots', 0],
  ['slots', '4', 'slots: expected a whole number from 0 to 1000000, got a string; it counts as 0 slots', 0],
  ['rate', '1/1h', 'rate: expected { starts, perMs }, two numbers, got a string; it counts as 0 slots', 0],
  ['rate', { starts: 1, perMs: '1h' }, 'rate: expected { starts, perMs }, two numbers, got an object', 0],
  ['rate', { starts: -1, perMs: 1_000 }, 'rate: expected { starts, perMs }, two numbers, got an object', 0],
  ['rate', null, '', 4],
])(
  'a limit whose %s is %p lets nothing begin where it was meant to, and that is told',
  async (field, value, told, slots) => {
    const logger = recordingLogger()
    replica = replicaOf(database.db, lifecycle, { logger })
    const limits = database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION)
    await limits.insertOne({ _id: 'api', ...(field === 'rate' && { slots: 4 }), [field]: value })
    await things(database.db).insertOne({ _id: 'limited', phase: 'Creating' })
    await replica.runOnce()
    expect(await new Limits(database.db).list()).toMatchObject([{ name: 'api', slots }])
    expect(logger.lines.map(({ message }) => message).join()).toContain(told)
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(slots > 0 ? 1 : 0)
  },
)
