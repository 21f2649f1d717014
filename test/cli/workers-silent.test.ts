import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { Crew } from '../../src/cli/start/workers/crew.js'
import { SignsOfLife } from '../../src/cli/start/workers/signs-of-life.js'
import { WorkerLink } from '../../src/cli/start/workers/worker-link.js'
import { readSettings } from '../../src/config/index.js'
import { PARKED_AT } from '../../src/lock/index.js'
import { systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { isAlive } from '../support/database-local.js'
import { recordingLogger } from '../support/thing.js'
import { THINGS } from './cli-process.js'

jest.setTimeout(400_000)
const WITHIN = { timeoutMs: 100_000 }

describe('a worker whose event loop stands still', () => {
  const database = useDatabase()
  let crew: Crew | undefined
  afterEach(async () => {
    crew?.kill()
    await crew?.stop(10_000)
  })

  test('is killed and restarted: an endless handler ends parked, and fifty good documents beside it are done', async () => {
    const settings = readSettings({ MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS }, { logLevel: 'silent' })
    const things = database.db.collection('Thing')
    const logger = recordingLogger()
    crew = new Crew({
      workers: ['crew-1', 'crew-2'].map((name) => ({
        name,
        config: { settings: { ...settings, name }, cwd: '/', logFormat: 'json', measured: false },
      })),
      env: { ...process.env, THING_LOCK_TIMEOUT: '1s', THING_MAX_CLAIMS: '2' },
      logger,
      signOfLifeEveryMs: 1_000,
    })
    await crew.start()
    const good = Array.from({ length: 50 }, () => ({ phase: 'Creating' }))
    await things.insertMany([{ phase: 'Creating', endless: true }, ...good])

    await eventually(async () => {
      expect(await crew!.notReady()).toContainEqual(expect.stringMatching(/^crew-\d: no sign of life for \d s$/))
    }, WITHIN)
    await eventually(async () => {
      expect(await things.countDocuments({ phase: 'Created' })).toBe(50)
      expect(await things.countDocuments({ endless: true, lockedAt: PARKED_AT })).toBe(1)
    }, WITHIN)

    // The first one may be back, and have parked the document, before the second one is given up.
    const killed = await eventually(() => {
      const lines = logger.lines.filter(({ message }) => message.includes('has given no sign of life for 6 s'))
      expect(lines.length).toBeGreaterThanOrEqual(2)
      return lines
    }, WITHIN)
    expect(killed[0]).toMatchObject({
      level: 'error',
      fields: { silentMs: 6_000, lockedBy: expect.stringMatching(/^crew-\d~/) },
    })
    const pids = killed.map(({ message }) => Number(/process (\d+)/.exec(message)![1]))
    await eventually(() => expect(pids.filter(isAlive)).toEqual([]), WITHIN) // the line is written before the signal arrives
    await eventually(async () => expect(await crew!.notReady()).toEqual([]), WITHIN)
  })

  test('answers nobody, and no probe of readiness waits for it', async () => {
    const settings = readSettings({ MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS }, { logLevel: 'silent' })
    const config = { settings: { ...settings, name: 'crew-1' }, cwd: '/', logFormat: 'json', measured: false } as const
    crew = new Crew({ workers: [{ name: 'crew-1', config }], env: process.env, logger: recordingLogger() })
    await crew.start()
    expect(await crew.notReady()).toEqual([])
    const things = database.db.collection('Thing')
    await things.insertOne({ phase: 'Creating', endless: true })
    await eventually(async () => expect(await crew!.notReady()).toEqual(['crew-1: no answer in 500 ms']), WITHIN)
    const began = systemClock.monotonicMs()
    await crew.notReady()
    expect(systemClock.monotonicMs() - began).toBeLessThan(2_000)
  })
})

describe('signs of life', () => {
  /** One worker that works and one that starts; the supervisor's turns, each so long after the one before. */
  function watched() {
    let now = 0
    const logger = recordingLogger()
    const link = (identity: string | undefined) => {
      const one = { identity, pid: 7, unanswered: 0, kills: 0, asked: 0 }
      return Object.assign(one, {
        kill: () => {
          one.kills += 1
        },
        askForSignOfLife: () => {
          one.asked += 1
          one.unanswered += 1
        },
      })
    }
    const working = link('w~1')
    const starting = link(undefined)
    const workers = [
      { name: 'w', link: working },
      { name: 's', link: starting },
      { name: 'ended', link: undefined },
    ]
    const signs = new SignsOfLife(workers, logger, { now: () => new Date(), monotonicMs: () => now })
    const turns = (count: number, afterMs = 10_000) => {
      for (let i = 0; i < count; i++) {
        now += afterMs
        signs.turn()
      }
    }
    return { working, starting, workers, signs, turns, logger }
  }

  test('a worker that leaves six questions unanswered is killed with a word; one that starts has thirty', () => {
    const { working, starting, workers, signs, turns, logger } = watched()
    turns(6)
    expect([working.asked, working.kills]).toEqual([6, 0])
    expect(signs.silence(workers[0]!)).toBe('no sign of life for 50 s')
    turns(1)
    expect([working.kills, starting.kills]).toEqual([1, 0])
    expect(logger.lines).toEqual([
      {
        level: 'error',
        message: expect.stringMatching(
          /^worker w \(process 7\) has given no sign of life for 1 min: .* killed and restarted\. .* parked after maxClaims/,
        ),
        fields: { worker: 'w', lockedBy: 'w~1', silentMs: 60_000 },
      },
    ])
    turns(23)
    expect(starting.kills).toBe(0)
    turns(1)
    expect(starting.kills).toBe(1)
  })

  test('one word is enough, also late', () => {
    const { working, turns } = watched()
    for (let i = 0; i < 10; i++) {
      turns(6)
      working.unanswered = 0
    }
    expect(working.kills).toBe(0)
  })

  test('a supervisor that was paused, or is starved, kills nobody', () => {
    const { working, turns } = watched()
    turns(5)
    turns(1, 3_600_000)
    expect([working.unanswered, working.kills]).toEqual([5, 0])
    turns(100, 16_000)
    expect([working.unanswered, working.kills]).toEqual([5, 0])
  })

  test('a silent worker isn’t asked for anything else: nothing grows in its channel', async () => {
    const ask = jest.fn(async () => undefined)
    const end = Promise.withResolvers<unknown>()
    const stop = () => end.resolve({ code: 0, signal: null, failure: undefined })
    const link = { identity: 'w~1', unanswered: 3, settled: Promise.resolve(), ended: end.promise, ask, stop }
    const launch = jest.spyOn(WorkerLink, 'launch').mockReturnValue(link as never)
    const crew = new Crew({ workers: [{ name: 'w', config: {} as never }], env: {}, logger: recordingLogger() })
    try {
      await crew.start()
      expect(await crew.notReady()).toEqual(['w: no sign of life for 20 s'])
      expect(await crew.metrics()).toEqual([])
      expect(ask).not.toHaveBeenCalled()
    } finally {
      await crew.stop(10_000)
      launch.mockRestore()
    }
  })
})
