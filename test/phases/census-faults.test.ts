import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import type { Replica } from '../../src/index.js'
import { DUTIES_COLLECTION, endDuties, takeDuties } from '../../src/lock/index.js'
import { lookAtCensus } from '../../src/phases/index.js'
import { useDatabase } from '../support/database.js'
import { recordingLogger, replicaOf, thingWith } from '../support/thing.js'

describe('the census, where something is wrong', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  const database = useDatabase()
  const duties = () => database.db.collection<Document & { _id: string }>(DUTIES_COLLECTION)

  async function prepared() {
    const logger = recordingLogger()
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
      { logger },
    )
    replicas.push(replica)
    await replica.prepare()
    const runAll = () => (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
    return { replica, logger, runAll }
  }

  test('one that runs for longer than its interval is left to its replica; if that is killed, another takes it', async () => {
    const { replica, runAll } = await prepared()
    await replica.tick()
    await lookAtCensus(database.db)
    await replica.tick()
    const takenBy = async (agoMs: number, fields: Document) => {
      const begunAt = new Date(Date.now() - agoMs)
      const other = { by: 'other', shift: 1, everyMs: 5_000, found: { costMs: 10 }, begunAt, ...fields }
      await duties().replaceOne({ _id: 'census of thing' }, other, { upsert: true })
      await runAll()
      return (await duties().findOne({ _id: 'census of thing' }))!['by']
    }
    expect(await takenBy(50_000, { tookMs: null })).toBe('other')
    expect(await takenBy(50_000, { tookMs: 10 })).not.toBe('other')
    expect(await takenBy(120_000, { tookMs: null })).not.toBe('other')
  })

  test('a duty that was given back is as due as it was', async () => {
    const census = [{ name: 'a', everyMs: 5_000, mostMs: 90_000 }]
    const ended = { by: 'before', tookMs: 7, begunAt: new Date(Date.now() - 50_000), everyMs: 5_000 }
    await duties().insertOne({ _id: 'a', ...ended })
    const [one, two] = [
      { by: 'one', shift: 1 },
      { by: 'two', shift: 1 },
    ] as const
    expect(await takeDuties(database.db, census, one)).toEqual(['a'])
    await endDuties(database.db, one, [], ['a'])
    expect(await duties().findOne({ _id: 'a' })).toMatchObject({ tookMs: 7, begunAt: ended.begunAt })
    expect(await takeDuties(database.db, census, two)).toEqual(['a'])
  })
})
