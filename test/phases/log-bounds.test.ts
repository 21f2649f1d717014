import { describe, expect, jest, test } from '@jest/globals'
import type { StepEnded } from '../../src/index.js'
import { BoundedLog } from '../../src/phases/reporting/bounded-log.js'
import { refuseUnhandledRejections } from '../faults/unhandled.js'
import { clientAt, ManualClock } from '../lock/fixture.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { recordingLogger, replicaOf, ShiftedClock, thingOf, things, thingWith } from '../support/thing.js'

const MANY = 300
const MINUTE_MS = 60_000
const backOff = { firstError: '10m', longestError: '10m' }

refuseUnhandledRejections()

describe('log lines about documents are bounded for each cause', () => {
  const database = useDatabase()
  const put = (phase = 'Creating', count = MANY, prefix = 'd') =>
    things(database.db).insertMany(Array.from({ length: count }, (_, i) => ({ _id: `${prefix}${i}`, phase })))

  function replica(handler: (doc: any, step: any) => unknown, settings: object = {}) {
    const logger = recordingLogger()
    const clock = new ShiftedClock()
    const steps: StepEnded[] = []
    const observer = { stepEnded: (event: StepEnded) => void steps.push(event) }
    const lifecycle = thingWith(handler as never, thingOf({ backOff, ...settings }))
    const one = replicaOf(database.db, lifecycle, { logger, clock, observer })
    const lines = (start: string) => logger.lines.filter(({ message }) => message.startsWith(start))
    return { one, logger, clock, steps, lines }
  }

  test('many that fail alike, and one that fails otherwise: eleven lines and one; observers hear of each', async () => {
    const { one, steps, lines, logger } = replica(async (doc) => {
      throw doc._id === 'd7' ? new RangeError('the odd one') : new Error(`no route to ${doc._id}`)
    })
    await put()
    await one.runOnce()
    expect(steps).toHaveLength(MANY)
    expect(lines('a step failed: no route')).toHaveLength(10)
    expect(lines('a step failed: the odd one')).toHaveLength(1)
    const [summary] = lines('a step failed: 289 more in Creating (Error) within ')
    expect(summary?.message).toMatch(
      /that were not logged individually; the last: a step failed: no route to d\d+; phaselock list thing --phase Creating shows them, phaselock show <id> why$/,
    )
    expect(summary).toMatchObject({ level: 'warn', fields: { phase: 'Creating', name: 'Error', count: 289 } })
    expect(logger.lines).toHaveLength(12)
  })

  test('a logger that throws costs its lines, and no step or tick', async () => {
    const gone = () => {
      throw new Error('the worker has exited')
    }
    const logger = { debug: gone, info: gone, warn: gone, error: gone }
    const lifecycle = thingWith(async (doc, step) => {
      if (doc._id === 'd7') throw new Error('x')
      return step.moveTo('Created')
    }, thingOf({ backOff }))
    const proxy = await TcpProxy.start(database.uri)
    const client = await clientAt(proxy.uri)
    const one = replicaOf(client.db(database.db.databaseName), lifecycle, { logger })
    await one.prepare()
    await put()
    proxy.answerAll(({ name }) => (name === 'aggregate' ? { ok: 0, code: 8, errmsg: 'odd' } : undefined))
    await one.tick()
    proxy.pass()
    await one.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(MANY - 1)
    expect(await things(database.db).countDocuments({ 'progress.attempts': 1 })).toBe(1)
    await one.stop()
    await client.close()
    await proxy.stop()
  })

  test('without a logger, warnings and errors go to standard error, and nothing else does', async () => {
    const written: string[] = []
    const spy = jest.spyOn(process.stderr, 'write').mockImplementation((text) => written.push(String(text)) > 0)
    const lifecycle = thingWith(async (doc, step) => {
      if (doc._id === 'd0') throw new Error('no route')
      return step.moveTo('Created')
    }, thingOf({ backOff }))
    const one = replicaOf(database.db, lifecycle, { logger: undefined })
    await put('Creating', 2)
    await one.runOnce().finally(() => spy.mockRestore())
    expect(written).toEqual([expect.stringMatching(/^phaselock warn: a step failed: no route \{ .*id: 'd0'.*\}\n$/)])
  })

  test('the summary comes with the first tick after the minute, also when nothing fails any more', async () => {
    const { one, lines, clock } = replica(async () => {
      throw new Error('x')
    })
    await one.prepare()
    await put()
    await one.tick()
    await one.idle()
    expect(lines('a step failed')).toHaveLength(10)
    clock.advance(MINUTE_MS)
    await one.tick()
    await one.idle()
    expect(lines('a step failed: 290 more')).toHaveLength(1)
    clock.advance(MINUTE_MS)
    await one.tick()
    expect(lines('a step failed')).toHaveLength(11)
    // A new minute has its details again.
    await put('Creating', 15, 'later')
    await one.runOnce()
    expect(lines('a step failed: x')).toHaveLength(20)
    expect(lines('a step failed: 5 more')).toHaveLength(1)
  })

  test('what was counted is told when the replica stops', async () => {
    const { one, lines } = replica(async () => {
      throw new Error('x')
    })
    await one.prepare()
    await put('Creating', 30)
    await one.tick()
    await one.idle()
    await one.stop()
    expect(lines('a step failed: 20 more')).toHaveLength(1)
  })

  test.each<[string, string, (doc: any, step: any) => unknown]>([
    ['parked', 'parked', async (_doc, step) => step.park('look at me')],
    [
      'parked after their errors',
      'parked',
      async () => {
        throw new Error('x')
      },
    ],
    [
      'lost',
      'lease lost (refused)',
      async (doc, step) => {
        await things(database.db).updateOne({ _id: doc._id }, { $set: { lockedBy: 'other~1#1.1' } })
        return step.moveTo('Created')
      },
    ],
  ])('many that are %s: eleven lines', async (_name, kind, handler) => {
    const { one, lines, logger } = replica(handler, { maxAttempts: 1 })
    await put()
    await one.runOnce()
    expect(lines(`${kind}: ${MANY - 10} more in Creating`)).toHaveLength(1)
    expect(logger.lines).toHaveLength(11)
  })

  test('many whose deadline has passed: eleven lines', async () => {
    const phases = {
      Creating: { next: ['Created', 'Deleting'], deadline: { after: '1h', moveTo: 'Deleting' } },
      Created: { rest: true },
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true },
    }
    const { one, lines, logger } = replica(async (_doc, step) => step.moveTo('Created'), { phases })
    const since = new Date(Date.now() - 7_200_000)
    await things(database.db).insertMany(
      Array.from({ length: MANY }, (_, i) => ({ _id: `d${i}`, phase: 'Creating', progress: { since } })),
    )
    await one.runOnce()
    expect(lines('deadline passed: 290 more in Creating')).toHaveLength(1)
    expect(logger.lines).toHaveLength(11)
  })

  test('documents that are put aside: ten lines, and what was left out is told though no other comes', async () => {
    const { one, lines, logger } = replica(async (_doc, step) => step.moveTo('Created'))
    await things(database.db).insertMany(
      Array.from({ length: MANY }, (_, i) => ({ _id: `d${i}`, phase: 'Creating', progress: 'mine' })),
    )
    await one.runOnce()
    expect(lines('thing d')).toHaveLength(10)
    expect(lines(`documents put aside: ${MANY - 10} more (progress)`)).toHaveLength(1)
    expect(logger.lines).toHaveLength(11)
  })

  test('checkpoints after the end, and an observer that throws: bounded too', async () => {
    const late: any[] = []
    const logger = recordingLogger()
    const handler = async (_doc: unknown, step: any) => {
      late.push(step)
      return step.moveTo('Created')
    }
    const observer = {
      stepEnded: () => {
        throw new Error('mine')
      },
    }
    const one = replicaOf(database.db, thingWith(handler), { logger, observer })
    await put('Creating', 100)
    await one.runOnce()
    for (const step of late) await step.checkpoint({ n: 1 }).catch(() => undefined)
    await one.stop()
    const starting = (start: string) => logger.lines.filter(({ message }) => message.startsWith(start)).length
    expect(starting('checkpoint was called after')).toBe(10)
    expect(starting('late checkpoints: 90 more')).toBe(1)
    expect(starting("an observer's stepEnded threw: Error: mine")).toBe(10)
    expect(starting("an observer's stepEnded threw: 90 more")).toBe(1)
  })

  test('hundreds of phases that nobody knows: ten lines', async () => {
    const { one, logger } = replica(async (_doc, step) => step.moveTo('Created'))
    await things(database.db).insertMany(
      Array.from({ length: MANY }, (_, i) => ({ _id: `d${i}`, phase: `Creating${i}` })),
    )
    await one.runOnce()
    expect(logger.lines.length).toBeLessThanOrEqual(11)
    expect(logger.lines.at(-1)?.message).toMatch(/^documents in unknown phases: 290 more within/)
  })

  test('any number of causes: bounded lines and memory, and every one of them is counted', () => {
    const logger = recordingLogger()
    const clock = new ManualClock()
    const log = new BoundedLog(logger, clock)
    for (let i = 0; i < 10_000; i += 1) log.warn({ kind: 'a step failed', name: `Error${i}` }, `a step failed: ${i}`)
    const detailed = logger.lines.length
    expect(detailed).toBeLessThanOrEqual(60)
    log.tellAll()
    const told = logger.lines.slice(detailed).map(({ fields }) => (fields as { count: number }).count)
    expect(detailed + told.reduce((sum, count) => sum + count, 0)).toBe(10_000)
    expect(logger.lines.length).toBeLessThanOrEqual(61)
    log.tellAll()
    clock.advance(MINUTE_MS)
    log.flush()
    expect(logger.lines.length).toBeLessThanOrEqual(61)
  })
})
