import { describe, expect, test } from '@jest/globals'
import { type CommandStartedEvent, type Document, MongoClient } from 'mongodb'
import { useDatabase } from '../support/database.js'
import { useSchedulers } from './support.js'

const MANY = 30_000
const BATCH = 10_000
const DAY_MS = 86_400_000

/** Keys examined by every part of an aggregate, its `$unionWith`s included. */
function keysOf(explained: unknown): number {
  if (Array.isArray(explained)) return explained.reduce((sum: number, one) => sum + keysOf(one), 0)
  if (typeof explained !== 'object' || explained === null) return 0
  const { totalKeysExamined, ...rest } = explained as Document
  if (typeof totalKeysExamined === 'number') return totalKeysExamined
  return keysOf(Object.values(rest))
}

/** As it stands once it was planned: it sleeps by lockedAt. */
function planned(i: number, at: Date) {
  const fields = { task: 'work', at, isActive: true }
  const lockedAt = new Date(at.getTime() - 30_000)
  return { _id: `s${i}`, phase: 'Active', ...fields, known: fields, nextRunAt: at, lockedAt, createdAt: new Date(0) }
}

describe('30,000 schedules', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()

  test('those that are not due cost nothing: a tick sends the same command and examines as few keys', async () => {
    const client = await new MongoClient(database.uri, { monitorCommands: true }).connect()
    try {
      const db = client.db()
      const ran: unknown[] = []
      const one = scheduler(db, { tasks: { work: async (_args, run) => void ran.push(run.schedule) } })
      await one.schedules.upsert('s', { task: 'work', at: new Date(Date.now() + DAY_MS) })
      await one.replica.runOnce()
      const idleTick = async () => {
        // What is only done once a minute is done before.
        await one.replica.tick()
        await one.replica.idle()
        const sent: CommandStartedEvent[] = []
        const note = (event: CommandStartedEvent) => void sent.push(event)
        client.on('commandStarted', note)
        // The look for edits has a second of its own: this tick comes before it is due again.
        await database.db
          .collection<{ _id: string }>('schedules.watch')
          .updateOne({}, { $set: { lockedAt: new Date(Date.now() + DAY_MS) } })
        await one.replica.tick()
        await one.replica.idle()
        client.off('commandStarted', note)
        const look = sent.find((event) => event.commandName === 'aggregate')!
        const { lsid: _lsid, $db: _db, maxTimeMS: _max, $clusterTime: _time, ...question } = look.command
        const explained = await db.command({ explain: question, verbosity: 'executionStats' })
        return { names: sent.map((event) => event.commandName), keys: keysOf(explained) }
      }
      // What is done once a minute only is not what a tick costs.
      const leastOf = async () => {
        const ticks = [await idleTick(), await idleTick(), await idleTick()]
        return ticks.reduce((least, tick) => (tick.names.length < least.names.length ? tick : least))
      }
      const few = await leastOf()
      for (let i = 0; i < MANY; i += BATCH) {
        const documents = Array.from({ length: BATCH }, (_, j) => planned(i + j, new Date(Date.now() + DAY_MS + i + j)))
        await database.db.collection<{ _id: string }>('schedules').insertMany(documents, { ordered: false })
      }
      const many = await leastOf()
      expect(many.names).toEqual(few.names)
      expect(many.keys).toBeLessThanOrEqual(few.keys + 2)
      await database.db.collection<{ _id: string }>('schedules').insertOne(planned(-1, new Date(Date.now() - 1_000)))
      await one.replica.runOnce()
      expect(ran).toEqual(['s-1'])
      expect(await one.schedules.runs('s-1')).toMatchObject([{ phase: 'Completed' }])
    } finally {
      await client.close()
    }
  })
})
