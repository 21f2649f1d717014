import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, expect, test } from '@jest/globals'
import { backDate as backDateAll } from '../../src/testing/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, recordingObserver, replicaOf, ShiftedClock, thingOf, things, thingWith } from '../support/thing.js'

const MAX_CLAIMS = 3

describe('a handler that kills its process', () => {
  const database = useDatabase()
  const putGood = (count: number, more: object = {}) =>
    things(database.db).insertMany(
      Array.from({ length: count }, (_, i) => ({ _id: `good-${i}`, phase: 'Creating', ...more })) as never,
    )
  const putPoison = (count: number) =>
    things(database.db).insertMany(
      Array.from({ length: count }, (_, i) => ({ _id: `poison-${i}`, phase: 'Creating', poison: true })) as never,
    )
  const countIn = (filter: object) => things(database.db).countDocuments(filter)
  const parked = { lockedAt: { $gte: new Date('9999-01-01') } }

  /** Starts replicas one after the other, each lease run out, until one ends in order; returns how many were killed. */
  async function runToTheEnd(handler: string, settings = `maxClaims: ${MAX_CLAIMS}`): Promise<number> {
    for (let kills = 0; kills < 60; kills += 1) {
      if ((await killedBy(database.uri, handler, settings)) === null) return kills
      await backDateAll(database.db.collection('Thing'), 31_000, { filter: { lockedBy: { $exists: true } } })
    }
    throw new Error('expected a replica to end in order, 60 were killed')
  }

  const KILL = `async (doc, step) => {
    if (doc.poison) process.kill(process.pid, 'SIGKILL')
    await new Promise((go) => setTimeout(go, 20))
    return step.moveTo('Created')
  }`

  test.each([
    ['one among 30', 1, 29, KILL],
    ['one among 30, with abort', 1, 29, KILL.replace("process.kill(process.pid, 'SIGKILL')", 'process.abort()')],
    [
      'one among 30, in a thread',
      1,
      29,
      `thread(new URL('${new URL('fixtures/thread-poison.mjs', import.meta.url).href}'))`,
    ],
    ['one before 1,000', 1, 1_000, KILL.replace('20)', '0)')],
    ['three among 30', 3, 27, KILL],
  ])('%s: it is parked, and none of the others', async (_name, poison, good, handler) => {
    await putPoison(poison)
    await putGood(good)
    const kills = await runToTheEnd(handler)
    expect(await countIn({ poison: true, ...parked })).toBe(poison)
    expect(await countIn({ phase: 'Created' })).toBe(good)
    expect(kills).toBeLessThanOrEqual(poison * MAX_CLAIMS)
  })
})

describe('what may be held beside what', () => {
  const database = useDatabase()
  const put = (count: number, name: string, claims: number) =>
    things(database.db).insertMany(
      Array.from({ length: count }, (_, i) => ({
        _id: `${name}-${i}`,
        phase: 'Creating',
        lockedAt: new Date(1_000 + i),
        progress: { claims },
      })) as never,
    )

  /** Runs a replica and notes how many steps ran at once, by how often their documents had been claimed before. */
  async function most(settings: object = {}) {
    const running: number[] = []
    const seen = { all: 0, besideLast: 0, second: 0, third: 0 }
    const observer = recordingObserver()
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        const { claims = 0 } = step.progress
        running.push(claims)
        const of = (n: number) => running.filter((one) => one === n).length
        seen.all = Math.max(seen.all, running.length)
        seen.second = Math.max(seen.second, of(2))
        seen.third = Math.max(seen.third, of(3))
        if (of(10) > 0) seen.besideLast = Math.max(seen.besideLast, running.length - 1)
        await new Promise((go) => setTimeout(go, 5))
        running.splice(running.indexOf(claims), 1)
        return step.moveTo('Created')
      }, thingOf(settings)),
      { observer },
    )
    await replica.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Creating' })).toBe(0)
    return seen
  }

  test('1,000 that a crash has left go on as many at once as ever', async () => {
    await put(1_000, 'left', 1)
    expect((await most()).second).toBe(32)
  })

  test('with each further claim a quarter of them, and on their last one alone', async () => {
    await put(40, 'third', 2)
    await put(5, 'last', 9)
    await put(100, 'new', 0)
    const seen = await most()
    expect(seen.third).toBe(8)
    expect(seen.besideLast).toBe(0)
  })

  test('what waits to be held alone is not kept from it by a stream of others', async () => {
    const clock = new ShiftedClock()
    const blocked = gate()
    await put(1, 'last', 9)
    await put(1, 'long', 0)
    const done: string[] = []
    const replica = replicaOf(
      database.db,
      thingWith(async (doc, step) => {
        if (doc._id === 'long-0') await blocked.wait
        done.push(doc._id)
        return step.moveTo('Created')
      }),
      { clock },
    )
    await replica.prepare()
    await things(database.db).updateOne({ _id: 'last-0' }, { $set: { lockedAt: new Date('9999-01-01') } })
    await replica.tick()
    await eventually(() => expect(replica.status().running).toBe(1))
    await things(database.db).updateOne({ _id: 'last-0' }, { $set: { lockedAt: new Date(1_000) } })
    for (let second = 0; second < 8; second += 1) {
      await replica.tick()
      clock.advance(1_000)
    }
    await things(database.db).insertOne({ _id: 'later', phase: 'Creating' })
    await replica.tick()
    expect(done).toEqual([])
    blocked.open()
    await eventually(() => expect(done).toHaveLength(2))
    expect(done).toEqual(['long-0', 'last-0'])
    await replica.runOnce()
    expect(done).toEqual(['long-0', 'last-0', 'later'])
  })
})

/** A replica as a process of its own, of the compiled program; resolves to the signal that ended it. */
async function killedBy(uri: string, handler: string, settings: string): Promise<string | null> {
  const code = `
    import { MongoClient } from '${import.meta.resolve('mongodb')}'
    import { lifecycleOf, Replica, thread } from '${new URL('../../dist/index.js', import.meta.url).href}'
    const phases = { Creating: { next: ['Created'] }, Created: { rest: true } }
    const thing = lifecycleOf().define({ name: 'thing', collection: 'Thing', phases, ${settings} })
    const bound = thing.handle({ Creating: ${handler} })
    const client = await new MongoClient('${uri}').connect()
    const replica = new Replica({ db: client.db(), lifecycles: [bound] })
    await replica.runOnce()
    await replica.stop()
    await client.close()`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', code], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const [status, signal] = (await once(child, 'exit')) as [number | null, string | null]
  if (signal === null && status !== 0)
    throw new Error(`expected the replica to end in order, its exit code is ${status}`)
  return signal
}
