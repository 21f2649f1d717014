import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import type { Replica } from '../../src/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { backDate, gate, recordingObserver, replicaOf, things, thingWith } from '../support/thing.js'

describe('poison', () => {
  const database = useDatabase()
  const read = async () => (await things(database.db).findOne({ _id: 'a' })) as Document

  test('a replica that is stopped in order does not count, also where its handler ignores that', async () => {
    const stuck = gate()
    const begun: number[] = []
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    for (let start = 0; start < 12; start += 1) {
      const replica = replicaOf(
        database.db,
        thingWith(async (_doc, step) => {
          begun.push(start)
          // Each of these takes the last second that a stop leaves to handlers.
          if (start % 6 === 0) await stuck.wait
          else
            await new Promise((_resolve, reject) =>
              step.signal.addEventListener('abort', () => reject(step.signal.reason)),
            )
          return step.moveTo('Created')
        }),
        { grace: '10ms' },
      )
      await replica.tick()
      await eventually(() => expect(begun).toHaveLength(start + 1))
      await replica.stop()
      await eventually(async () => expect((await read())['progress'].claims).toBe(0))
      await backDate(database.db, 'a', 31_000)
    }
    stuck.open()
    const last = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await last.runOnce()
    expect(await read()).toMatchObject({ phase: 'Created' })
  })

  test('one that dies in the middle counts: ten times, then it is parked with that reason', async () => {
    const never = gate()
    const begun: number[] = []
    const dead: Replica[] = []
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    for (let start = 1; start <= 10; start += 1) {
      const replica = replicaOf(
        database.db,
        thingWith(async (_doc, step) => {
          begun.push(start)
          await never.wait
          return step.moveTo('Created')
        }),
      )
      dead.push(replica)
      await replica.tick()
      await eventually(() => expect(begun).toHaveLength(start))
      expect((await read())['progress'].claims).toBe(start)
      // Dead: nothing of it is recorded or renewed, and its lease runs out.
      await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedBy: `dead~${start}#1.1` } })
      await backDate(database.db, 'a', 31_000)
    }
    const observer = recordingObserver()
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
      { observer },
    )
    await replica.runOnce()
    expect(observer.steps).toMatchObject([{ outcome: 'park', reason: expect.stringMatching(/^claimed 10 times/) }])
    expect((await read())['lockedAt'].getUTCFullYear()).toBe(9999)
    never.open()
    await Promise.all(dead.map((replica) => replica.stop()))
  })

  test('a handler that kills its process counts: nine claims before, this one, parked at the next', async () => {
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', progress: { claims: 9 } })
    expect(await killedByItsHandler(database.uri)).toBe('SIGKILL')
    expect(await read()).toMatchObject({ phase: 'Creating', lockedBy: expect.any(String), progress: { claims: 10 } })
    await backDate(database.db, 'a', 31_000)
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await replica.runOnce()
    expect((await read())['progress'].error.message).toMatch(/^claimed 10 times without a recorded outcome/)
  })
})

/** A replica as a process of its own, of the compiled program, whose handler sends it SIGKILL; resolves to the signal. */
async function killedByItsHandler(uri: string): Promise<string | null> {
  const code = `
    import { MongoClient } from '${import.meta.resolve('mongodb')}'
    import { lifecycleOf, Replica } from '${new URL('../../dist/index.js', import.meta.url).href}'
    const phases = { Creating: { next: ['Created'] }, Created: { rest: true } }
    const thing = lifecycleOf().define({ name: 'thing', collection: 'Thing', phases })
    const bound = thing.handle({ Creating: async () => process.kill(process.pid, 'SIGKILL') })
    const client = await new MongoClient('${uri}').connect()
    await new Replica({ db: client.db(), lifecycles: [bound] }).runOnce()`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', code], { stdio: 'inherit' })
  const [, signal] = (await once(child, 'exit')) as [number | null, string | null]
  return signal
}
