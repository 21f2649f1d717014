import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, expect, test } from '@jest/globals'
import { backDate as backDateAll } from '../../src/testing/index.js'
import { sleep, systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, recordingObserver, replicaOf, SteppedClock, thingOf, things, thingWith } from '../support/thing.js'

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

  /** A replica of which the step of `blocked` goes on until `end`; its clock stands still but for a second after each tick. */
  function replicaWithLong(blocked: string) {
    const clock = new SteppedClock()
    const { wait, open: end } = gate()
    const done: string[] = []
    const replica = replicaOf(
      database.db,
      thingWith(async (doc, step) => {
        if (doc._id === blocked) await wait
        done.push(doc._id)
        return step.moveTo('Created')
      }),
      { clock },
    )
    const { running } = replica as never as { running: { claimer: { current?: Promise<void> } }[] }
    let seconds = 0
    /** Ticks, each after `before`, until a condition is met, at most 60 times in all; returns how many times it did so far. */
    const until = async (isMet: () => boolean, before = async () => {}) => {
      for (; seconds < 60 && !isMet(); seconds += 1) {
        await before()
        await replica.tick()
        // The claims that it has begun are over: on a busy machine they would meet another second.
        await Promise.all(running.map(({ claimer }) => claimer.current))
        await eventually(() => replica.status().held === replica.status().running)
        await eventually(() => replica.status().held <= 1)
        clock.advance(1_000)
      }
      return seconds
    }
    return { clock, done, end, replica, until }
  }

  /** One that waits to be held alone, `last-0`, beside a long step of a document claimed that often before, and a new one a second. */
  async function besideLong(claims: number) {
    const { replica, until, ...more } = replicaWithLong('long-0')
    await put(1, 'last', 9)
    await put(1, 'long', claims)
    await replica.prepare()
    await things(database.db).updateOne({ _id: 'last-0' }, { $set: { lockedAt: new Date('9999-01-01') } })
    await replica.tick()
    await eventually(() => expect(replica.status().running).toBe(1))
    await things(database.db).updateOne({ _id: 'last-0' }, { $set: { lockedAt: new Date(1_000) } })
    let inserted = 0
    const insert = async () => {
      await things(database.db).insertOne({ _id: `new-${inserted++}`, phase: 'Creating' })
    }
    return { ...more, replica, until: (isMet: () => boolean) => until(isMet, insert) }
  }

  test('what waits to be held alone is not kept from it by a stream of others, nor by a step that goes on and that nobody suspects', async () => {
    const { done, until, end, replica } = await besideLong(0)
    // 5 s, one more, and the ticks that find that out and see it done; a claim may come a tick late.
    expect(await until(() => done.includes('last-0'))).toBeLessThanOrEqual(10)
    // Those that came in meanwhile have waited; then they are claimed again.
    expect(done.indexOf('last-0')).toBeLessThanOrEqual(8)
    await until(() => done.includes('new-6'))
    expect(done).not.toContain('long-0')
    end()
    await replica.runOnce()
    expect(new Set(done).size).toBe(done.length)
  })

  test('it waits for a step that is suspect too, and others are claimed meanwhile', async () => {
    const { done, until, end, replica } = await besideLong(1)
    await until(() => done.length >= 20)
    expect(done).not.toContain('last-0')
    end()
    await replica.runOnce()
    expect(done).toContain('last-0')
  })

  test('a long step on its last claim is alone for 1.5 s, and then stops nobody', async () => {
    const { clock, done, until, end, replica } = replicaWithLong('last-0')
    await put(1, 'last', 9)
    await replica.tick()
    await eventually(() => expect(replica.status().running).toBe(1))
    await put(3, 'new', 0)
    await put(2, 'last-as-well', 9)
    await put(2, 'second', 1)
    await replica.tick()
    expect(replica.status().held).toBe(1)
    clock.advance(1_501)
    await replica.tick()
    await eventually(() => expect(done).toHaveLength(3))
    expect(done).toEqual(expect.arrayContaining(['new-0', 'new-1', 'new-2']))
    end()
    await until(() => done.length === 8)
    expect(done).toHaveLength(8)
  })

  test('many in a row on their last claim leave half of the time to the others', async () => {
    const times: { last: boolean; atMs: number }[] = []
    await put(20, 'last', 9)
    await put(400, 'new', 0)
    const replica = replicaOf(
      database.db,
      thingWith(
        async (doc, step) => {
          const last = doc._id.startsWith('last')
          await sleep(last ? 50 : 5)
          times.push({ last, atMs: systemClock.monotonicMs() })
          return step.moveTo('Created')
        },
        thingOf({ concurrency: 1 }),
      ),
    )
    await replica.runOnce()
    expect(times).toHaveLength(420)
    const firstNew = times.findIndex(({ last }) => !last)
    expect(firstNew).toBeLessThanOrEqual(2)
    // Never two of them without others between, as long as there are others.
    const lastNew = times.findLastIndex(({ last }) => !last)
    const inARow = times.slice(0, lastNew).filter(({ last }, i) => last && times[i + 1]?.last)
    expect(inARow).toEqual([])
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
