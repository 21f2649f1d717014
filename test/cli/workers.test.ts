import { describe, expect, jest, test } from '@jest/globals'
import type { ProcessEnd } from '../../src/cli/processes/replica-process.js'
import { Crew, RestartPause } from '../../src/cli/start/workers/crew.js'
import { WorkerLink } from '../../src/cli/start/workers/worker-link.js'
import { eventually, useDatabase } from '../support/database.js'
import { isAlive } from '../support/database-local.js'
import { recordingLogger } from '../support/thing.js'
import { type Running, THINGS, useCliFolder } from './cli-process.js'

jest.setTimeout(400_000)
const WITHIN = { timeoutMs: 100_000 }
const KILLED: ProcessEnd = { code: null, signal: 'SIGKILL', failure: undefined }

describe('phaselock start --workers', () => {
  const database = useDatabase()
  const folder = useCliFolder()

  /** Two workers that work, and the names that they have in `lockedBy`. */
  async function twoWorkers(...more: string[]): Promise<{ replica: Running; identities: string[]; http: string }> {
    const replica = folder().phaselock(
      [
        'start',
        '--workers',
        '2',
        '--name',
        'crew',
        '--log',
        'json',
        '--http',
        '0',
        '--http-host',
        '127.0.0.1',
        ...more,
      ],
      { MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS, THING_LOCK_TIMEOUT: '6s' },
    )
    const [, named] = await eventually(() => replica.printed(/^ {2}workers +2: (.+)$/m), WITHIN)
    const [, http] = await replica.printed(/^ {2}http +(http:\S+)\/livez/m)
    return { replica, identities: named!.split(', '), http: http! }
  }

  const things = () => database.db.collection('Thing')
  const insert = (howMany: number, fields: object) =>
    things().insertMany(Array.from({ length: howMany }, () => ({ phase: 'Creating', ...fields })))
  const began = () => database.db.collection('Began').countDocuments()
  /** Lets the handlers that wait end. */
  const go = () => database.db.collection('Go').insertOne({})
  const held = () => things().countDocuments({ lockedBy: { $exists: true } })
  const workedOnBy = async () =>
    new Set((await things().distinct('progress.endedBy')).map((token: string) => token.split('#')[0]!))
  /** The processes of the workers: what the supervisor has started. */
  async function pids(replica: Running): Promise<number[]> {
    const listed = folder().start('ps', ['-o', 'pid=', '--ppid', String(replica.child.pid)])
    await listed.exited
    return listed.out.trim().split(/\s+/).map(Number)
  }

  test('both work; one that is killed is started again and its work goes on; SIGTERM ends all, and nothing is held', async () => {
    const { replica, identities, http } = await twoWorkers()
    expect(identities.map((one) => one.split('~')[0])).toEqual(['crew-1', 'crew-2'])
    await eventually(async () => expect((await fetch(`${http}/readyz`)).status).toBe(200), WITHIN)
    await eventually(async () => {
      await insert(20, {})
      expect([...(await workedOnBy())].toSorted()).toEqual(identities.toSorted())
    }, WITHIN)

    const before = await pids(replica)
    await insert(2, { waitsForGo: true })
    await eventually(async () => (await began()) === 2, WITHIN)
    process.kill(before[0]!, 'SIGKILL')
    await replica.printed(/worker crew-\d \(process \d+\) ended with signal SIGKILL; it is restarted in 1 s/, 'err')
    await go()
    await eventually(async () => expect(await things().countDocuments({ phase: 'Creating' })).toBe(0), WITHIN)
    await eventually(async () => expect((await fetch(`${http}/readyz`)).status).toBe(200), WITHIN)
    await folder().run(['pause', 'thing', '--phase', 'Deleting', '--by', 'ana'], { MONGODB_URI: database.uri })
    const paused = 'thing, phase Deleting: paused by ana'
    await eventually(async () => {
      expect(await (await fetch(`${http}/readyz`)).json()).toMatchObject({ info: { replica: { paused: [paused] } } })
    }, WITHIN)
    const metrics = await eventually(async () => {
      const text = await (await fetch(`${http}/metrics`)).text()
      expect(text).toMatch(/^phaselock_documents_due\{/m) // the first census comes within seconds
      return text
    }, WITHIN)
    expect(metrics).toMatch(/^phaselock_workers\{which="working"\} 2$/m)
    expect(metrics).toMatch(/^phaselock_worker_restarts_total 1$/m)
    expect(metrics).toMatch(/^phaselock_documents_due\{lifecycle="thing",phase="Creating"\} 0$/m)
    expect(metrics).toMatch(/^phaselock_steps_total\{lifecycle="thing",phase="Creating",outcome="moveTo"\} \d+$/m)
    expect(metrics.match(/^phaselock_replica_info\{/gm)).toHaveLength(2)

    await database.db.collection('Go').deleteMany()
    await database.db.collection('Began').deleteMany()
    await insert(2, { waitsForGo: true })
    await eventually(async () => (await began()) === 2, WITHIN)
    const workers = await pids(replica)
    replica.child.kill('SIGTERM')
    await replica.printed(
      /SIGTERM: no more claims.*"worker":"crew-1"|"worker":"crew-1".*SIGTERM: no more claims/,
      'err',
    )
    await go()
    expect(await replica.exited).toBe(0)
    expect(replica.out).toMatch(/^stopped$/m)
    expect(await held()).toBe(0)
    expect(workers.filter(isAlive)).toEqual([])
    const lines = replica.err
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(new Set(lines.map(({ worker }) => worker))).toEqual(new Set([undefined, 'crew-1', 'crew-2']))
  })

  test('whose supervisor is killed end by themselves, with their steps recorded', async () => {
    const { replica } = await twoWorkers()
    const workers = await pids(replica)
    expect(workers.filter(isAlive)).toHaveLength(2)
    await insert(2, { waitsForGo: true })
    await eventually(async () => (await began()) === 2, WITHIN)
    replica.child.kill('SIGKILL')
    await replica.printed(/the supervisor is gone: no more claims/, 'err')
    await go()
    await eventually(() => expect(workers.filter(isAlive)).toEqual([]), WITHIN)
    expect(await things().countDocuments({ phase: 'Created' })).toBe(2)
    expect(await held()).toBe(0)
  })

  test.each(['0', 'many', '1.5'])('a number that can’t be (%s) is refused', async (given) => {
    const { code, err } = await folder().run(['start', '--workers', given])
    expect(code).toBe(2)
    expect(err).toContain(`--workers: expected a whole number from 1 to 256, or auto, got '${given}'`)
  })
})

describe('a worker that ends', () => {
  test('is started again also where the system at first makes no process', async () => {
    const end = Promise.withResolvers<ProcessEnd>()
    const link = (ended: Promise<ProcessEnd>) =>
      ({
        ...{ identity: 'w~1', pid: 1, settled: Promise.resolve(), ended, unanswered: 0 },
        askForSignOfLife: () => undefined,
        stop: () => end.resolve(KILLED),
      }) as unknown as WorkerLink
    const launch = jest
      .spyOn(WorkerLink, 'launch')
      .mockReturnValueOnce(link(Promise.resolve(KILLED)))
      .mockImplementationOnce(() => {
        throw new Error('spawn ENOMEM')
      })
      .mockReturnValueOnce(link(end.promise))
    try {
      const logger = recordingLogger()
      const crew = new Crew({ workers: [{ name: 'w', config: {} as never }], env: {}, logger })
      expect(await crew.start()).toBe(true)
      await eventually(() => expect(launch).toHaveBeenCalledTimes(3), WITHIN)
      await crew.stop(10_000)
      expect(logger.lines.map(({ message }) => message)).toEqual([
        'worker w (process 1) ended with signal SIGKILL; it is restarted in 1 s',
        'worker w could not be restarted: Error: spawn ENOMEM; the next attempt is in 2 s',
      ])
    } finally {
      launch.mockRestore()
    }
  })
})

describe('the pause before a worker is started again', () => {
  test('doubles from 1 s to 30 s, and is 1 s again after it was up for a minute', () => {
    let now = 0
    const pause = new RestartPause({ now: () => new Date(), monotonicMs: () => now })
    const ends = (afterMs: number) => {
      pause.started()
      now += afterMs
      return pause.ended()
    }
    expect([5, 5, 5, 5, 5, 59_999, 5].map(ends)).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000])
    expect([60_000, 5].map(ends)).toEqual([1_000, 2_000])
  })
})
