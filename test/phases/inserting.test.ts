import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { OwnerClient, type Replica, type RunnableLifecycle, silentLogger } from '../../src/index.js'
import { ON_DUPLICATE, PARKED_AT, readLockTimeouts, TASK_LOCK_INIT_TIME } from '../../src/lock/index.js'
import { pauseWork } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import {
  backDate,
  type CreatingHandler,
  replicaOf,
  type Thing,
  thing,
  thingOf,
  things,
  thingWith,
} from '../support/thing.js'
import { SHIP } from './questions-fixture.js'

const [FREE, HOUR] = [TASK_LOCK_INIT_TIME, 3_600_000]
const ago = new Date('2026-01-01T00:00:00Z')
const later = () => new Date(Date.now() + HOUR)
const progress = { since: ago, attempts: 3, claims: 2, waitingFor: 'rain', error: { name: 'Error', message: 'no' } }

describe('an insert of a document that exists', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()
  const ownerOf = (model = thing.model) => new OwnerClient<Thing>(database.db, model)
  const stored = (_id = 'a') => things(database.db).findOne({ _id }) as Promise<Record<string, any>>
  const put = (document: Document) => things(database.db).insertOne({ _id: 'a', n: 1, ...document })

  async function prepared(lifecycle: RunnableLifecycle) {
    const replica = replicaOf(database.db, lifecycle, { logger: silentLogger })
    replicas.push(replica)
    await replica.prepare()
    return replica
  }

  const STATES: Record<string, () => Document> = {
    'new and due': () => ({ phase: 'Creating' }),
    'unlocked and due': () => ({ phase: 'Creating', lockedAt: FREE, fence: 5, progress }),
    asleep: () => ({ phase: 'Creating', lockedAt: later(), fence: 5, progress: { ...progress, resumeAt: later() } }),
    'asleep from the start': () => ({ phase: 'Creating', lockedAt: later() }),
    parked: () => ({ phase: 'Creating', lockedAt: PARKED_AT, fence: 5, progress: { ...progress, step: 'late' } }),
    resting: () => ({ phase: 'Created', lockedAt: FREE, fence: 5, progress }),
    final: () => ({ phase: 'Deleted', lockedAt: later(), fence: 5, progress: { since: ago, resumeAt: later() } }),
    held: () => ({ phase: 'Creating', lockedAt: new Date(), lockedBy: 'r~1#1.1', fence: 5, progress }),
    'under a lease that is over': () => ({ phase: 'Creating', lockedAt: ago, lockedBy: 'r~1#1.1', fence: 5, progress }),
  }

  const same = (kind: string) => ({ kind, change: 'nothing' }) as const
  const replaced = { kind: 'replaced', change: 'data' } as const
  const due = { kind: 'replaced', change: 'data, due' } as const
  const again = { kind: 'restarted', change: 'begins again' } as const
  const woken = { kind: 'woken', change: 'due' } as const
  const [ignored, queued] = [same('ignored'), { kind: 'queued', change: 'left' } as const]

  test.each([
    ['new and due', [ignored, ignored, replaced, replaced]],
    ['unlocked and due', [ignored, ignored, replaced, replaced]],
    ['asleep', [ignored, woken, due, due]],
    ['asleep from the start', [ignored, woken, due, due]],
    ['parked', [ignored, same('parked'), same('parked'), again]],
    ['resting', [ignored, same('resting'), same('resting'), again]],
    ['final', [ignored, same('resting'), same('resting'), again]],
    ['held', [ignored, queued, queued, queued]],
    ['under a lease that is over', [ignored, queued, queued, queued]],
  ])('that is %s: each way to meet it', async (state, cells) => {
    for (const [i, onDuplicate] of ON_DUPLICATE.entries()) {
      await things(database.db).deleteMany()
      await put(STATES[state]!())
      const before = await stored()
      const { kind, change } = cells[i]!
      expect([onDuplicate, await ownerOf().insert({ _id: 'a', n: 2, effects: ['x'] }, { onDuplicate })]).toEqual([
        onDuplicate,
        { id: 'a', kind },
      ])
      const { lockedAt, n, effects, phase, updatedAt, progress: after, ...rest } = await stored()
      const { lockedAt: _l, n: _n, phase: phaseBefore, progress: progressBefore, ...restBefore } = before
      expect(rest).toEqual(restBefore)
      const hasData = ['data', 'data, due', 'begins again'].includes(change)
      expect({ n, effects }).toEqual(hasData ? { n: 2, effects: ['x'] } : { n: 1, effects: undefined })
      const isDue = ['due', 'data, due', 'begins again'].includes(change)
      expect(lockedAt).toEqual(isDue ? FREE : before['lockedAt'])
      if (change === 'begins again') {
        const { since, history, ...others } = after
        expect([phase, others, updatedAt]).toEqual(['Creating', { attempts: 0, claims: 0 }, since])
        expect(since.getTime()).toBeGreaterThan(Date.now() - 60_000)
        expect(history).toMatchObject([
          { outcome: 'owner', reason: 'inserted again', by: 'owner', from: phaseBefore, to: 'Creating' },
        ])
      } else if (change === 'left') {
        const set = onDuplicate === 'wake' ? {} : { n: 2, effects: ['x'] }
        const begin = onDuplicate === 'runAgain' ? { begin: 'Creating' } : {}
        expect(after).toEqual({ ...progressBefore, next: { set, ...begin, by: 'owner', at: expect.any(Date) } })
      } else {
        const { resumeAt, ...slept } = progressBefore ?? {}
        expect(phase).toBe(phaseBefore)
        expect(after).toEqual(isDue && progressBefore ? slept : progressBefore)
      }
    }
  })

  test('there is none: it is inserted as ever, and its first claim finds nothing of ours in it', async () => {
    for (const onDuplicate of ON_DUPLICATE) {
      const document = { _id: onDuplicate, n: 1, effects: ['$n', '$$ROOT'], state: 'Running' as const }
      expect(await ownerOf().insert(document, { onDuplicate })).toEqual({ id: onDuplicate, kind: 'inserted' })
      expect(await stored(onDuplicate)).toEqual({ ...document, phase: 'Creating', createdAt: expect.any(Date) })
    }
  })

  test('values are stored as they are, objects as a whole; what the insert has none of stays', async () => {
    const nested = (effects: unknown) => ({ effects }) as unknown as Thing
    const owner = ownerOf()
    await put({ phase: 'Creating', effects: { old: 1 }, made: 'by a step' })
    await owner.insert({ ...nested({ $add: ['$n', 1] }), _id: 'a' }, { onDuplicate: 'replaceWaiting' })
    expect(await stored()).toEqual({
      _id: 'a',
      phase: 'Creating',
      n: 1,
      effects: { $add: ['$n', 1] },
      made: 'by a step',
    })
  })

  test('a lockedAt is when it comes due, each time anew: calls that follow one another make one run, with the newest data', async () => {
    const seen: unknown[] = []
    const replica = await prepared(
      thingWith(async ({ n }, step) => {
        seen.push(n)
        return step.moveTo('Created')
      }),
    )
    for (const n of [1, 2, 3]) {
      await ownerOf().insert({ _id: 'a', n, lockedAt: later() }, { onDuplicate: 'runAgain' })
      await replica.runOnce()
    }
    expect(seen).toEqual([])
    await ownerOf().wake('a')
    await replica.runOnce()
    expect([seen, (await stored())['phase']]).toEqual([[3], 'Created'])
  })

  test('dueIn: what comes in meanwhile goes into one run, that long after the first, by the lockTimeout in force', async () => {
    const seen: unknown[] = []
    const replica = await prepared(
      thingWith(async ({ n }, step) => {
        seen.push(n)
        return step.moveTo('Created')
      }),
    )
    const owner = ownerOf(thingOf({ lockTimeout: '2m' }).model)
    const dueInMs = async () => {
      const inForce = (await readLockTimeouts(database.db, ['thing'])).get('thing')!
      return (await stored())['lockedAt'].getTime() + inForce.dueMs - inForce.now.getTime()
    }
    const met = (n: number, dueIn: '1h' | '2h' | '30m', onDuplicate: 'runAgain' | 'wake' = 'runAgain') =>
      owner.insert({ _id: 'a', n }, { onDuplicate, dueIn })
    const MINUTE = 60_000
    expect((await met(1, '1h')).kind).toBe('inserted')
    expect(await dueInMs()).toBeGreaterThan(59 * MINUTE)
    expect(await dueInMs()).toBeLessThanOrEqual(60 * MINUTE)
    expect((await met(2, '2h')).kind).toBe('replaced')
    expect(await dueInMs()).toBeLessThanOrEqual(60 * MINUTE)
    expect((await met(3, '30m')).kind).toBe('replaced')
    expect((await met(9, '1h', 'wake')).kind).toBe('woken')
    expect(await dueInMs()).toBeGreaterThan(29 * MINUTE)
    expect(await dueInMs()).toBeLessThanOrEqual(30 * MINUTE)
    await replica.runOnce()
    expect(seen).toEqual([])
    await backDate(database.db, 'a', 30 * MINUTE + 1_000)
    expect((await met(4, '1h')).kind).toBe('replaced')
    await replica.runOnce()
    expect(seen).toEqual([4])
    expect((await met(5, '1h')).kind).toBe('restarted')
    await replica.runOnce()
    expect(seen).toEqual([4])
    expect(await dueInMs()).toBeGreaterThan(59 * MINUTE)
  })

  test('of a hundred at once one is inserted, and all agree on that', async () => {
    for (const onDuplicate of ON_DUPLICATE) {
      const inserts = Array.from({ length: 100 }, (_, n) => ownerOf().insert({ _id: onDuplicate, n }, { onDuplicate }))
      const kinds = (await Promise.all(inserts)).map(({ kind }) => kind)
      expect(kinds.filter((kind) => kind === 'inserted')).toHaveLength(1)
      const others = onDuplicate === 'ignore' || onDuplicate === 'wake' ? 'ignored' : 'replaced'
      expect(new Set(kinds)).toEqual(new Set(['inserted', others]))
    }
  })

  test('that asks: it is woken like any sleeper, and its question goes on', async () => {
    const asking: CreatingHandler = async (doc, step) => (doc.n === 3 ? step.moveTo('Created') : step.ask(SHIP))
    const replica = await prepared(thingWith(asking))
    await put({ phase: 'Creating' })
    await replica.runOnce()
    const { id } = (await stored())['progress'].question
    expect(await ownerOf().insert({ _id: 'a' }, { onDuplicate: 'ignore' })).toMatchObject({ kind: 'ignored' })
    expect(await ownerOf().insert({ _id: 'a', n: 2 }, { onDuplicate: 'wake' })).toMatchObject({ kind: 'woken' })
    expect((await stored())['n']).toBe(1)
    await replica.runOnce()
    expect((await stored())['progress'].question.id).toBe(id)
    expect(await ownerOf().insert({ _id: 'a', n: 2 }, { onDuplicate: 'replaceWaiting' })).toMatchObject({
      kind: 'replaced',
    })
    await replica.runOnce()
    expect((await stored())['progress'].question.id).toBe(id)
    await ownerOf().insert({ _id: 'a', n: 3 }, { onDuplicate: 'runAgain' })
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Created', n: 3 })
    expect((await stored())['progress']).not.toHaveProperty('question')
  })

  test('that is paused: it has the new data, and nothing runs before the pause is over', async () => {
    const replica = await prepared(thingWith(async (_doc, step) => step.moveTo('Created')))
    await pauseWork({ db: database.db, models: [thing.model] }, { lifecycle: 'thing', by: 'ana' })
    await put({ phase: 'Creating', lockedAt: later() })
    expect(await ownerOf().insert({ _id: 'a', n: 2 }, { onDuplicate: 'runAgain' })).toMatchObject({ kind: 'replaced' })
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Creating', n: 2 })
    await ownerOf().resume()
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Created', n: 2 })
  })

  test('that is none of ours, or nobody knows the phase of: refused, and left as it is', async () => {
    const owner = ownerOf()
    for (const odd of [{ phase: 'Painting' }, { phase: ['Creating'] }, { phase: 'Creating', progress: 7 }, { n: 1 }]) {
      await things(database.db).deleteMany()
      await put(odd)
      const before = await stored()
      for (const onDuplicate of ['wake', 'replaceWaiting', 'runAgain'] as const) {
        const insert = owner.insert({ _id: 'a', n: 2 }, { onDuplicate })
        const said = odd.phase === 'Painting' ? /isn't known here: .* got 'Painting'/ : /isn't Phaselock's/
        await expect(insert).rejects.toMatchObject({ name: 'InvalidDocument', message: expect.stringMatching(said) })
      }
      expect(await owner.insert({ _id: 'a' }, { onDuplicate: 'ignore' })).toEqual({ id: 'a', kind: 'ignored' })
      expect(await stored()).toEqual(before)
    }
  })

  test('what can not be right is refused, and nothing is inserted', async () => {
    const owner = ownerOf()
    const insert = (document: object, ...[onDuplicate, more]: [onDuplicate?: unknown, more?: object]) =>
      owner.insert(document as never, { onDuplicate, ...more } as never)
    await expect(insert({ _id: 'a' }, 'replace')).rejects.toThrow(
      "insert: onDuplicate: expected one of ignore, wake, replaceWaiting, runAgain, got 'replace'",
    )
    await expect(insert({ _id: 'a' }, 'wake', { onDuplicates: 1 })).rejects.toThrow("unknown option 'onDuplicates'")
    await expect(insert({}, 'wake')).rejects.toThrow(
      'expected an _id by which a document may be there already, got undefined',
    )
    await expect(insert({ _id: 'a', progress: {} }, 'wake')).rejects.toThrow(
      "only the owner's own fields, got progress",
    )
    await expect(insert({ _id: 'a', lockedBy: 'me', fence: 1 }, 'wake')).rejects.toThrow('got lockedBy, fence')
    await expect(insert({ _id: 'a', lockedAt: 'soon' }, 'wake')).rejects.toThrow(
      "expected lockedAt to be a date, or left out, got 'soon'",
    )
    await expect(insert({ _id: 'a', phase: 'Painting' }, 'wake')).rejects.toThrow('expected a phase of thing')
    await expect(insert({ _id: 'a', n: () => 1 }, 'wake')).rejects.toThrow("'n' is a function")
    const late = insert({ _id: 'a', lockedAt: later() }, 'wake', { dueIn: '1h' })
    await expect(late).rejects.toThrow('dueIn: expected without a lockedAt, which says when it is due')
    await expect(insert({ _id: 'a' }, 'wake', { dueIn: 5 })).rejects.toThrow(
      'insert: dueIn: expected a duration from 1ms to 365d',
    )
    await expect(insert({ _id: 'a' }, undefined, { dueIn: '1h' })).rejects.toThrow(
      "dueIn: expected together with onDuplicate, which says what becomes of a document that is there already, such as onDuplicate: 'ignore'",
    )
    await expect(owner.insertMany([{ _id: 'a' }], { onDuplicate: 'wake' } as never)).rejects.toThrow(
      'insertMany: onDuplicate: expected to be given to insert',
    )
    const legacy = ownerOf(thingOf({ legacyWriters: true }).model)
    await expect(legacy.insert({ _id: 'a' }, { onDuplicate: 'wake' })).rejects.toThrow(
      "expected 'ignore', got 'wake': thing has legacyWriters",
    )
    expect(await things(database.db).countDocuments()).toBe(0)
    expect(await legacy.insert({ _id: 'a' }, { onDuplicate: 'ignore' })).toEqual({ id: 'a', kind: 'inserted' })
  })

  test("a unique index of the owner's refuses it: DocumentExists, and the document stays as it was", async () => {
    await things(database.db).createIndex({ n: 1 }, { unique: true })
    await things(database.db).insertMany([
      { _id: 'a', phase: 'Creating', n: 1 },
      { _id: 'b', phase: 'Creating', n: 2 },
    ])
    for (const _id of ['b', 'c']) {
      await expect(ownerOf().insert({ _id, n: 1 }, { onDuplicate: 'replaceWaiting' })).rejects.toMatchObject({
        name: 'DocumentExists',
        index: 'n_1',
      })
    }
    expect(await stored('b')).toMatchObject({ n: 2 })
    expect(await stored('c')).toBeNull()
  })

  test('the audit says what it came to', async () => {
    const audit = { by: 'ana', reason: 'new rows' }
    const owner = ownerOf()
    await owner.insert({ _id: 'a' }, { onDuplicate: 'runAgain', audit })
    await owner.insert({ _id: 'a' }, { onDuplicate: 'ignore', audit })
    await things(database.db).updateOne({ _id: 'a' }, { $set: { phase: 'Created' } })
    await owner.insert({ _id: 'a' }, { onDuplicate: 'wake', audit })
    await owner.insert({ _id: 'a' }, { onDuplicate: 'runAgain', audit })
    const entries = await database.db.collection('phaselock.audit').find().sort({ at: 1, _id: 1 }).toArray()
    expect(entries.map(({ outcome, problem }) => problem ?? outcome)).toEqual(['done', 'unchanged', 'resting', 'done'])
    expect((await stored())['progress'].history).toMatchObject([{ by: 'ana', from: 'Created', to: 'Creating' }])
  })
})
