import { describe, expect, test } from '@jest/globals'
import { MissingIndexes, type ReplicaOptions } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'

const handler = thingWith(async (_doc, step) => step.moveTo('Created'))

describe("indexes: 'check', for a database user without DDL rights", () => {
  const database = useDatabase()
  const checking = (more: Partial<ReplicaOptions> = {}) =>
    replicaOf(database.db, handler, { indexes: 'check', ...more })
  const collections = async () => (await database.db.listCollections().toArray()).map(({ name }) => name).sort()

  test('an empty database is refused at start with the commands to paste, and nothing is created', async () => {
    const failed = await checking()
      .start()
      .catch((error) => error)
    expect(failed).toBeInstanceOf(MissingIndexes)
    expect(failed.message).toBe(
      [
        `expected the database '${database.db.databaseName}' to be prepared (indexes: 'check'), but it is not:`,
        '  - index {"phase":1,"lockedAt":1,"updatedAt":1} of Thing: it is missing',
        '  - index {"state":1,"phase":1} of Thing: it is missing',
        '  - collection phaselock.lifecycles: it is missing',
        'run in mongosh, as a user who may:',
        `  use ${database.db.databaseName}`,
        `  db.getCollection('Thing').createIndex({"phase":1,"lockedAt":1,"updatedAt":1})`,
        `  db.getCollection('Thing').createIndex({"state":1,"phase":1})`,
        `  db.createCollection('phaselock.lifecycles')`,
      ].join('\n'),
    )
    expect(await collections()).toEqual([])
  })

  test('the commands that it names are all that was missing', async () => {
    const failed: MissingIndexes = await checking()
      .prepare()
      .catch((error) => error)
    for (const { command } of failed.missing) {
      const [, collection, key] = /^db\.getCollection\('(.+)'\)\.createIndex\((.+)\)$/.exec(command) ?? []
      if (key) await database.db.createIndex(collection!, JSON.parse(key))
      else await database.db.createCollection('phaselock.lifecycles')
    }
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await checking({ onBadPlan: 'refuse' }).runOnce()
    expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created' })
  })

  test('an index that holds only a part of the documents does not count, and the command drops it first', async () => {
    await replicaOf(database.db, handler).prepare()
    await things(database.db).dropIndex('state_1_phase_1')
    await things(database.db).createIndex({ state: 1, phase: 1 }, { sparse: true, name: 'mine' })
    const failed: MissingIndexes = await checking()
      .prepare()
      .catch((error) => error)
    expect(failed.missing).toEqual([
      {
        what: 'index {"state":1,"phase":1} of Thing: it is of another kind (sparse)',
        command: `db.getCollection('Thing').dropIndex('mine'); db.getCollection('Thing').createIndex({"state":1,"phase":1})`,
      },
    ])
  })

  test('a database that another replica has prepared is fine', async () => {
    await replicaOf(database.db, handler).prepare()
    await checking().prepare()
  })
})
