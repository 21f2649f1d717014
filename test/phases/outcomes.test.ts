import { describe, expect, test } from '@jest/globals'
import { Unavailable } from '../../src/index.js'
import { PARKED_AT } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import {
  backDate,
  type CreatingHandler,
  recordingLogger,
  recordingObserver,
  replicaOf,
  thingOf,
  things,
  thingWith,
} from '../support/thing.js'

describe('how a step may end', () => {
  const database = useDatabase()

  /** Runs one document through a tick with this handler; returns it, the log and what was observed. */
  async function once(handler: CreatingHandler, settings: object = {}, doc: object = {}) {
    const logger = recordingLogger()
    const observer = recordingObserver()
    // A pause after an error that no busy machine outlasts: what failed isn't due again in the same run.
    const backOff = { firstError: '10m', longestError: '10m' }
    const replica = replicaOf(database.db, thingWith(handler, thingOf({ backOff, ...settings })), {
      logger,
      observer,
      random: () => 0.5,
    })
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', ...doc })
    await replica.runOnce()
    const read = () => things(database.db).findOne({ _id: 'a' }) as Promise<Record<string, any>>
    return { replica, logger, observer, read, found: await read() }
  }

  test('wait: asleep for a while that grows with the time waited, no attempt used, nobody holds it', async () => {
    // It has waited for half a minute: its first pause, 3 s, isn't over on a busy machine before the run is.
    const since = new Date(Date.now() - 30_000)
    const { replica, found, read } = await once(
      async (_doc, step) => step.wait('certificate not Ready', { set: { n: 1 } }),
      {},
      { updatedAt: since, progress: { since } },
    )
    expect(found).toMatchObject({ phase: 'Creating', n: 1 })
    expect(found['lockedBy']).toBeUndefined()
    expect(found['progress']).toMatchObject({ waitingFor: 'certificate not Ready', attempts: 0, claims: 0 })
    const firstSince = found['progress'].waitingSince
    await backDate(database.db, 'a', 60_000)
    await replica.runOnce()
    const later = await read()
    const pause = later['progress'].resumeAt.getTime() - later['progress'].history[0].at.getTime()
    expect(pause).toBeGreaterThanOrEqual(9_000)
    expect(pause).toBeLessThan(12_000)
    expect(later['progress'].history).toHaveLength(1)
    expect(later['progress'].history[0]).toMatchObject({ outcome: 'wait', count: 2, reason: 'certificate not Ready' })
    expect(later['progress'].waitingSince.getTime()).toBe(firstSince.getTime() - 60_000)
  })

  test('a lifecycle may have a back-off of its own, for waits and for errors', async () => {
    const backOff = { share: 0.5, firstError: '20s', longestError: '25s' }
    const { replica, read } = await once(async (_doc, step) => step.wait('x'), { backOff })
    await backDate(database.db, 'a', 20_000)
    await replica.runOnce()
    const pause = ({ progress }: Record<string, any>) => progress.resumeAt - progress.history.at(-1).at
    expect(pause(await read())).toBeGreaterThanOrEqual(10_000)
    expect(pause(await read())).toBeLessThan(30_000)
    const failing = thingWith(async () => Promise.reject(new Error('x')), thingOf({ backOff }))
    const other = replicaOf(database.db, failing, { random: () => 0.5 })
    await backDate(database.db, 'a', 60_000)
    await other.runOnce()
    expect(pause(await read())).toBe(20_000)
    await backDate(database.db, 'a', 60_000)
    await other.runOnce()
    expect(pause(await read())).toBe(25_000)
  })

  test('wait with `for`: asleep for that long, though longer than lockTimeout', async () => {
    const { found } = await once(async (_doc, step) => step.wait('tomorrow', { for: '1d' }))
    const pause = found['progress'].resumeAt.getTime() - found['progress'].history[0].at.getTime()
    expect(pause).toBe(86_400_000)
    expect(found['lockedAt'].getTime()).toBe(found['progress'].resumeAt.getTime() - 30_000)
  })

  test('park: waits for a person, who gives it another go', async () => {
    const { replica, found, read, logger } = await once(async (doc, step) =>
      doc.n ? step.moveTo('Created') : step.park('the host name belongs to gw-7', { set: { n: 1 } }),
    )
    expect(found).toMatchObject({ phase: 'Creating', n: 1, lockedAt: PARKED_AT })
    expect(found['progress'].error.message).toBe('the host name belongs to gw-7')
    const [line] = logger.lines.filter(({ message }) => message.startsWith('parked'))
    expect(line).toMatchObject({ level: 'warn', message: 'parked: the host name belongs to gw-7' })
    await replica.runOnce()
    expect((await read())['phase']).toBe('Creating')
    const owner = thingWith(async (_d, s) => s.again()) as never as { attach(db: unknown): { owner(): any } }
    expect(await owner.attach(database.db).owner().unpark('a', { by: 'anna' })).toBe('done')
    await replica.runOnce()
    const done = await read()
    expect(done['phase']).toBe('Created')
    expect(done['progress'].error).toBeUndefined()
    expect(done['progress'].history.map((entry: any) => [entry.outcome, entry.by === 'anna'])).toEqual([
      ['park', false],
      ['owner', true],
      ['moveTo', false],
    ])
  })

  test('an error: backs off, says what happened, and parks after maxAttempts in a row', async () => {
    const { replica, found, read, logger, observer } = await once(
      async () => {
        throw new TypeError('no such bucket')
      },
      { maxAttempts: 3, backOff: { firstError: '30s', longestError: '50s' } },
    )
    expect(found['progress']).toMatchObject({
      attempts: 1,
      claims: 0,
      error: { name: 'TypeError', message: 'no such bucket' },
    })
    expect(found['progress'].resumeAt.getTime() - found['progress'].history[0].at.getTime()).toBe(30_000)
    expect(logger.lines.find((line) => line.level === 'warn')?.message).toBe('a step failed: no such bucket')
    await backDate(database.db, 'a', 60_000)
    await replica.runOnce()
    expect((await read())['progress'].attempts).toBe(2)
    await backDate(database.db, 'a', 60_000)
    await replica.runOnce()
    const parked = await read()
    expect(parked['lockedAt']).toEqual(PARKED_AT)
    expect(parked['progress']).toMatchObject({ attempts: 3 })
    expect(parked['progress'].history.at(-1).reason).toBe('3 errors in a row, the last: no such bucket')
    expect(logger.lines.find((line) => line.message.startsWith('parked'))?.level).toBe('error')
    expect(observer.steps.map((step) => step.outcome)).toEqual(['error', 'error', 'park'])
  })

  test('attempts are errors in a row: any outcome sets them to 0', async () => {
    let calls = 0
    const { replica, read } = await once(async (_doc, step) => {
      calls += 1
      if (calls === 1) throw new Error('now and then')
      return step.wait('x')
    })
    await backDate(database.db, 'a', 700_000)
    await replica.runOnce()
    expect((await read())['progress'].attempts).toBe(0)
  })

  test('Unavailable: backs off without attempts, after 200 times still not parked', async () => {
    const { replica, found, read } = await once(
      async () => {
        throw new Unavailable('the API server answers 503', { retryAfter: '40s' })
      },
      { maxAttempts: 1 },
    )
    expect(found['progress'].resumeAt.getTime() - found['progress'].history[0].at.getTime()).toBe(40_000)
    for (let i = 0; i < 20; i += 1) {
      await backDate(database.db, 'a', 60_000)
      await replica.runOnce()
    }
    const later = await read()
    expect(later['progress']).toMatchObject({ attempts: 0, claims: 0, waitingFor: 'the API server answers 503' })
    expect(later['progress'].history[0]).toMatchObject({ outcome: 'unavailable', count: 21 })
  })

  const bad: [string, (step: any) => unknown, RegExp][] = [
    ['nothing', () => undefined, /'Creating' returned nothing; expected the result of step.again/],
    ['a string', () => 'Created', /returned Created; expected/],
    [
      'an object of its own',
      () => ({ phase: 'Created' }),
      /returned an object with phase; expected the result of step/,
    ],
    ['an unknown kind', () => ({ kind: 'jump' }), /returned kind "jump"/],
    [
      'a phase that it may not go to',
      (step) => step.moveTo('Deleted'),
      /moveTo\("Deleted"\): from 'Creating', expected one of the phases in its next: Created, Deleting/,
    ],
    ['a wait without a reason', (step) => step.wait(), /wait: expected a reason/],
    ['a wait without a unit', (step) => step.wait('x', { for: '10' }), /wait: for: expected a duration/],
    [
      'the name of the next step where its options belong',
      (step) => step.again('next'),
      /^again: expected an object with step, set, as in \{ step: "next" \}, got "next"$/,
    ],
    ['a number for options', (step) => step.moveTo('Created', 5), /^moveTo: expected an object with set, got 5$/],
    ['null for options', (step) => step.park('x', null), /^park: expected an object with set, got null$/],
    [
      'a pause where the options of a wait belong',
      (step) => step.wait('x', '5s'),
      /^wait: expected an object with for, on, set, as in \{ for: "5s" \}, got "5s"$/,
    ],
    [
      'an unknown option of moveTo',
      (step) => step.moveTo('Created', { sets: { n: 1 } }),
      /^moveTo: unknown option 'sets' \(did you mean 'set'\?\); known: set$/,
    ],
    [
      'an unknown option of again',
      (step) => step.again({ steps: 'x' }),
      /^again: unknown option 'steps' \(did you mean 'step'\?\); known: step, set$/,
    ],
    [
      'an unknown option of wait',
      (step) => step.wait('x', { fro: '5s' }),
      /^wait: unknown option 'fro' \(did you mean 'for'/,
    ],
    ['an unknown option of park', (step) => step.park('x', { for: '5s' }), /^park: unknown option 'for'; known: set$/],
    ['a reason twice', (step) => step.wait('x', { reason: 'y' }), /^wait: unknown option 'reason'/],
    [
      'an outcome of its own with an unknown option',
      () => ({ kind: 'again', sets: {} }),
      /^again: unknown option 'sets'/,
    ],
    [
      'a method without calling it',
      (step) => step.again,
      /'Creating' returned the function again without calling it; exp/,
    ],
    ['a reserved field', (step) => step.again({ set: { phase: 'Created' } }), /set: 'phase' is written by Phaselock/],
    ['a dotted field', (step) => step.again({ set: { 'a.b': 1 } }), /set: 'a.b' can't be a field name/],
    ['a $ field', (step) => step.again({ set: { $inc: 1 } }), /set: '\$inc' can't be a field name/],
  ]
  test.each(bad)(
    'a handler that returns %s: an error on the document, nothing else of it changed',
    async (_name, make, message) => {
      const { found, logger } = await once((async (_doc: unknown, step: unknown) => make(step)) as never)
      expect(found['phase']).toBe('Creating')
      expect(logger.lines.find((line) => line.message.startsWith('a step failed'))?.level).toBe('error')
      expect(found['progress'].error.name).toBe('InvalidOutcome')
      expect(found['progress'].error.message).toMatch(message)
      expect(found['progress'].attempts).toBe(1)
    },
  )

  test('an outcome of its own that is sound counts', async () => {
    const { found } = await once((async () => ({ kind: 'moveTo', phase: 'Created', set: { n: 1 } })) as never)
    expect(found).toMatchObject({ phase: 'Created', n: 1 })
  })

  test('an outcome of another step is refused', async () => {
    let first: unknown
    const { found } = await once((async (_doc: unknown, step: any) => {
      if (first) return first
      first = step.again()
      return first
    }) as never)
    expect(found['progress'].error.message).toMatch(/an outcome of another step/)
  })

  test("what a handler does to the document that it was given doesn't reach the next step, nor the database", async () => {
    const seen: unknown[] = []
    const { found } = await once(
      async (doc, step) => {
        seen.push(structuredClone(doc.effects))
        ;(doc.effects as string[]).push('changed')
        return seen.length < 3 ? step.again() : step.moveTo('Created')
      },
      {},
      { effects: ['mine'] },
    )
    expect(seen).toEqual([['mine'], ['mine'], ['mine']])
    expect(found['effects']).toEqual(['mine'])
  })

  test("`$` in an owner's value is never an expression, and an object replaces an old one", async () => {
    const { found } = await once(
      async (_doc, step) => step.moveTo('Created', { set: { cost: '$phase', box: { b: 2 } } as never }),
      {},
      { box: { a: 1 } },
    )
    expect(found).toMatchObject({ cost: '$phase', box: { b: 2 } })
    expect(found['box']).toEqual({ b: 2 })
  })

  test("a set that the owner's validator refuses: the error is recorded, other documents go on", async () => {
    await database.db.createCollection('Thing', { validator: { n: { $not: { $gt: 5 } } } })
    await things(database.db).insertMany(Array.from({ length: 20 }, (_, i) => ({ _id: `b${i}`, phase: 'Creating' })))
    const { found } = await once(async (doc, step) => step.moveTo('Created', { set: { n: doc._id === 'a' ? 9 : 1 } }))
    expect(found['phase']).toBe('Creating')
    expect(found['progress']).toMatchObject({ attempts: 1, error: { name: 'MongoServerError' } })
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(20)
  })

  test('progress may have another name', async () => {
    const { found } = await once(
      async (_doc, step) => step.wait('x'),
      { fields: { progress: '_phaselock' } },
      { progress: "the owner's" },
    )
    expect(found['progress']).toBe("the owner's")
    expect(found['_phaselock']).toMatchObject({ waitingFor: 'x' })
  })
})
