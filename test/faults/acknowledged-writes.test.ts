import { expect, jest, test } from '@jest/globals'
import { type DatabaseConnection, protocolCollection } from '../../src/database/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually } from '../support/database.js'
import { useLocalDatabase } from '../support/database-local.js'

jest.setTimeout(600_000)

/** A second each; without the protection one kill in three loses writes. CI sets 50. */
const KILLS = Number(process.env['PHASELOCK_TEST_KILLS'] ?? 10)
const WRITERS = 8

const local = useLocalDatabase()

interface Kept {
  readonly _id: string
  readonly written: number
}

/** Writes in each of the ways in which claims, outcomes and owners do, and remembers what was acknowledged. */
class Writers {
  readonly acknowledged = new Map<string, number>()
  private over = false
  private readonly running: Promise<void>[]

  constructor({ db }: DatabaseConnection, kill: number) {
    const ours = protocolCollection<Kept>(db, 'Kept')
    const theirs = db.collection<Kept>('Kept')
    const ways: ((_id: string) => Promise<[number, unknown]>)[] = [
      async (_id) => [1, await ours.insertMany([{ _id, written: 1 }])],
      async (_id) => [2, await ours.updateOne({ _id }, { $set: { written: 2 } })],
      async (_id) => [3, await ours.findOneAndUpdate({ _id }, { $set: { written: 3 } })],
      async (_id) => [4, await ours.bulkWrite([{ updateOne: { filter: { _id }, update: { $set: { written: 4 } } } }])],
      async (_id) => [5, await theirs.updateOne({ _id }, { $set: { written: 5 } })],
    ]
    this.running = Array.from({ length: WRITERS }, async (_, writer) => {
      for (let n = 0; !this.over; n += 1) {
        const _id = `${kill}.${writer}.${n}`
        try {
          for (const way of ways) this.acknowledged.set(_id, (await way(_id))[0])
        } catch {
          await sleep(50) // the server is away: whether it has that one is unknown
        }
      }
    })
  }

  async stop(): Promise<void> {
    this.over = true
    await Promise.all(this.running)
  }
}

test(`of what was acknowledged nothing is lost in ${KILLS} kills (kill -9) of the embedded engine`, async () => {
  const connection = await local().connect({ lockTimeout: '3s' })
  const stored = connection.db.collection<Kept>('Kept')
  const lost: string[] = []
  let acknowledged = 0
  for (let kill = 0; kill < KILLS; kill += 1) {
    const writers = new Writers(connection, kill)
    await eventually(() => writers.acknowledged.size > 10 + (kill % 5) * 10)
    const { engine } = await local().pids()
    process.kill(engine, 'SIGKILL')
    await writers.stop()
    await eventually(async () => {
      expect((await local().pids()).engine).not.toBe(engine)
      await connection.db.command({ ping: 1 })
    })
    const found = await stored.find({ _id: { $in: [...writers.acknowledged.keys()] } }).toArray()
    const kept = new Map(found.map(({ _id, written }) => [_id, written]))
    for (const [_id, written] of writers.acknowledged) if ((kept.get(_id) ?? 0) < written) lost.push(_id)
    acknowledged += writers.acknowledged.size
  }
  expect(acknowledged).toBeGreaterThan(10 * KILLS)
  expect(lost).toEqual([])
})
