import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import {
  type InsertResult,
  OwnerClient,
  type Replica,
  type ReplicaOptions,
  type RunnableLifecycle,
  silentLogger,
  Unavailable,
} from '../../src/index.js'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from '../../src/lock/index.js'
import { LifecycleKit } from '../../src/testing/index.js'
import { testServerUri, useDatabase } from '../support/database.js'
import {
  type CreatingHandler,
  gate,
  replicaOf,
  type Thing,
  thing,
  thingOf,
  thingSpec,
  things,
  thingWith,
} from '../support/thing.js'

type Kind = InsertResult['kind']

describe('an insert of a document that is held', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()
  const owner = () => new OwnerClient<Thing>(database.db, thing.model)
  const stored = () => things(database.db).findOne({ _id: 'a' }) as Promise<Record<string, any>>
  const kept = thingOf({ phases: { ...thingSpec.phases, Deleted: { final: true, keepFor: '1h' } } })

  async function prepared(lifecycle: RunnableLifecycle, more: Partial<ReplicaOptions> = {}) {
    const replica = replicaOf(database.db, lifecycle, { logger: silentLogger, ...more })
    replicas.push(replica)
    await replica.prepare()
    return replica
  }

  type Runs = { seen: unknown[]; replica: Replica }
  /** Runs the first step up to where `meanwhile` happens, and then to its end. Later runs move to Created. */
  async function during(
    first: CreatingHandler,
    meanwhile: () => Promise<unknown>,
    document: Document = {},
    definition = kept,
  ): Promise<Runs> {
    const seen: unknown[] = []
    const [begun, goOn] = [gate(), gate()]
    const handler: CreatingHandler = async (doc, step) => {
      seen.push([doc.n, doc.effects])
      if (seen.length > 1) return step.moveTo('Created')
      begun.open()
      await goOn.wait
      return first(doc, step)
    }
    const replica = await prepared(thingWith(handler, definition))
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', n: 1, ...document })
    const tick = replica.tick()
    await begun.wait
    await meanwhile()
    goOn.open()
    await tick
    await replica.idle()
    return { seen, replica }
  }

  const met = (n: number, onDuplicate: 'wake' | 'replaceWaiting' | 'runAgain', more: object = {}) =>
    owner().insert({ _id: 'a', n, ...more }, { onDuplicate })
  const queued = { id: 'a', kind: 'queued' satisfies Kind }

  const ENDS: [string, CreatingHandler][] = [
    ['a wait', async (_doc, step) => step.wait('rain', { for: '1h' })],
    ['a question', async (_doc, step) => step.ask({ question: 'Ship it?' })],
    ['an error', async () => Promise.reject(new Error('no'))],
    ['being unavailable', async () => Promise.reject(new Unavailable('no network', { retryAfter: '1h' }))],
    ['again', async (_doc, step) => step.again()],
  ]

  test.each(ENDS)('its step ends in %s: it has the new values, and is due at once', async (_name, handler) => {
    const { seen, replica } = await during(handler, async () => {
      expect(await met(2, 'replaceWaiting', { effects: ['new'] })).toEqual(queued)
      expect((await stored())['n']).toBe(1)
    })
    const between = await stored()
    expect(between).toMatchObject({ n: 2, effects: ['new'], lockedAt: TASK_LOCK_INIT_TIME })
    expect(between['progress']).not.toHaveProperty('next')
    expect(between['progress']).not.toHaveProperty('resumeAt')
    expect(between).not.toHaveProperty('lockedBy')
    await replica.runOnce()
    expect(seen).toEqual([
      [1, undefined],
      [2, ['new']],
    ])
    expect(await stored()).toMatchObject({ phase: 'Created' })
  })

  test('a chain of steps under one lease ends there: the next one begins under a claim of its own', async () => {
    const tokens: [claim: string, claims: unknown, fresh: unknown][] = []
    const [begun, goOn] = [gate(), gate()]
    const lifecycle = thingWith(async (doc, step) => {
      const { lockedBy } = doc as Thing & { lockedBy: string }
      tokens.push([lockedBy.replace(/[.][0-9]+$/, ''), step.progress.claims, doc.n])
      if (tokens.length === 2) {
        begun.open()
        await goOn.wait
      }
      return tokens.length < 3 ? step.again() : step.moveTo('Created')
    })
    const replica = await prepared(lifecycle)
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', n: 1 })
    const run = replica.runOnce()
    await begun.wait
    await met(2, 'wake')
    await met(2, 'replaceWaiting')
    goOn.open()
    await run
    const [first, second, third] = tokens
    expect(second).toEqual([first![0], 1, 1])
    expect(third).toEqual([expect.not.stringContaining(first![0]), 1, 2])
    expect(await stored()).toMatchObject({ phase: 'Created' })
  })

  test('what the step stores itself is there too, and under what was inserted after it', async () => {
    const { seen, replica } = await during(
      async (_doc, step) => step.wait('rain', { for: '1h', set: { n: 10, effects: ['mine'] } }),
      () => met(2, 'replaceWaiting'),
    )
    expect(await stored()).toMatchObject({ n: 2, effects: ['mine'] })
    await replica.runOnce()
    expect(seen).toHaveLength(2)
  })

  test.each([
    ['comes to rest', 'Created', async (_doc, step) => step.moveTo('Created')],
    ['is deleted', 'Deleted', async (_doc, step) => step.moveTo('Deleting')],
    ['is parked', 'Creating', async (_doc, step) => step.park('no')],
  ] as [string, string, CreatingHandler][])(
    'that then %s: replaced values are in it, and runAgain runs again',
    async (_name, phase, handler) => {
      const { seen, replica } = await during(handler, () => met(2, 'replaceWaiting'))
      await replica.runOnce()
      expect(await stored()).toMatchObject({ phase, n: 2 })
      expect((await stored())['progress']).not.toHaveProperty('next')
      expect(seen).toHaveLength(1)
      await things(database.db).deleteMany()

      const again = await during(handler, () => met(3, 'runAgain'))
      if (phase === 'Deleted') await again.replica.runOnce()
      else expect(await stored()).toMatchObject({ phase: 'Creating', n: 3, lockedAt: TASK_LOCK_INIT_TIME })
      await again.replica.runOnce()
      const seenAgain = phase === 'Deleted' ? [1] : [1, 3]
      expect(again.seen.map((one) => (one as unknown[])[0])).toEqual(seenAgain)
    },
  )

  test('a final phase keeps its document until its time, with the values; runAgain takes it back', async () => {
    const ends = thingOf({
      phases: {
        ...thingSpec.phases,
        Creating: { next: ['Created', 'Deleting', 'Deleted'] },
        Deleted: { final: true, keepFor: '1h' },
      },
    })
    for (const [onDuplicate, phase] of [
      ['wake', 'Deleted'],
      ['runAgain', 'Creating'],
    ] as const) {
      await things(database.db).deleteMany()
      const { replica } = await during(
        async (_doc, step) => step.moveTo('Deleted' as 'Deleting'),
        () => met(2, onDuplicate),
        {},
        ends,
      )
      const { progress, ...document } = await stored()
      expect(document).toMatchObject({ phase, n: onDuplicate === 'wake' ? 1 : 2 })
      expect('resumeAt' in progress).toBe(onDuplicate === 'wake')
      if (onDuplicate === 'wake') await replica.runOnce()
      expect(await stored()).not.toBeNull()
    }
  })

  test('of several inserts the newest value of each field counts, and once more stays once more', async () => {
    const later = new Date(Date.now() + 3_600_000)
    const { replica, seen } = await during(
      async (_doc, step) => step.moveTo('Created'),
      async () => {
        expect(await met(2, 'runAgain', { effects: ['old'], lockedAt: later })).toEqual(queued)
        expect((await stored())['progress'].next).toMatchObject({ lockedAt: later, begin: 'Creating' })
        expect(await met(3, 'replaceWaiting')).toEqual(queued)
        expect(await met(9, 'wake')).toEqual(queued)
        expect((await stored())['progress'].next).toEqual({
          ...{ set: { n: 3, effects: ['old'] }, begin: 'Creating', by: 'owner', at: expect.any(Date) },
        })
      },
    )
    await replica.runOnce()
    expect(seen).toEqual([
      [1, undefined],
      [3, ['old']],
    ])
    expect((await stored())['progress'].history).toMatchObject([
      { outcome: 'moveTo', to: 'Created' },
      { outcome: 'owner', reason: 'inserted again', from: 'Created', to: 'Creating', by: 'owner' },
      { outcome: 'moveTo', to: 'Created' },
    ])
  })

  test('with a lockedAt it sleeps until then', async () => {
    const later = new Date(Date.now() + 3_600_000)
    const { replica, seen } = await during(
      async (_doc, step) => step.moveTo('Created'),
      () => met(2, 'runAgain', { lockedAt: later }),
    )
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Creating', lockedAt: later, n: 2 })
    expect(seen).toHaveLength(1)
  })

  test('with dueIn it sleeps no longer than the first of them said; one without it makes it due at once', async () => {
    const left = async () => (await stored())['progress'].next.lockedAt as Date | undefined
    const { replica, seen } = await during(
      async (_doc, step) => step.moveTo('Created'),
      async () => {
        await owner().insert({ _id: 'a', n: 2 }, { onDuplicate: 'runAgain', dueIn: '1h' })
        const first = await left()
        expect(first!.getTime()).toBeGreaterThan(Date.now() + 50 * 60_000)
        await owner().insert({ _id: 'a', n: 3 }, { onDuplicate: 'runAgain', dueIn: '2h' })
        expect(await left()).toEqual(first)
        await owner().insert({ _id: 'a', n: 4 }, { onDuplicate: 'runAgain', dueIn: '30m' })
        expect((await left())!.getTime()).toBeLessThan(first!.getTime())
      },
    )
    await replica.runOnce()
    expect(seen).toHaveLength(1)
    expect(await stored()).toMatchObject({ phase: 'Creating', n: 4, lockedAt: expect.any(Date) })

    await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedBy: 'r~1#1.1' } })
    await met(5, 'wake')
    await owner().insert({ _id: 'a', n: 6 }, { onDuplicate: 'replaceWaiting', dueIn: '1h' })
    expect((await stored())['progress'].next).toMatchObject({ set: { n: 6 } })
    expect(await left()).toBeUndefined()
  })

  test('a checkpoint keeps the document, and what is left for it', async () => {
    const { replica, seen } = await during(
      async (_doc, step) => {
        await step.checkpoint({ n: 20 })
        expect(await stored()).toMatchObject({ n: 20, progress: { next: { set: { n: 2 } } } })
        return step.wait('rain', { for: '1h' })
      },
      () => met(2, 'replaceWaiting'),
    )
    expect(await stored()).toMatchObject({ n: 2 })
    await replica.runOnce()
    expect(seen).toHaveLength(2)
  })

  test('that is cancelled: it is parked with the values, and runAgain begins again', async () => {
    for (const onDuplicate of ['replaceWaiting', 'runAgain'] as const) {
      await things(database.db).deleteMany()
      const { replica } = await during(
        async (_doc, step) => {
          step.signal.throwIfAborted()
          return step.wait('rain')
        },
        async () => {
          expect(await met(2, onDuplicate)).toEqual(queued)
          expect(await owner().cancel('a', { by: 'ana' })).toBe('asked')
          await replicas.at(-1)!.tick()
        },
      )
      const isParked = onDuplicate === 'replaceWaiting'
      expect(await stored()).toMatchObject({ n: 2, lockedAt: isParked ? PARKED_AT : TASK_LOCK_INIT_TIME })
      await replica.runOnce()
      expect((await stored())['phase']).toBe(isParked ? 'Creating' : 'Created')
    }
  })

  test('whose holder dies: the values are there before another step begins, and that claim is not counted', async () => {
    const seen: unknown[] = []
    const lifecycle = thingWith(async (doc, step) => {
      seen.push([doc.n, step.progress.claims, step.progress.next])
      return seen.length === 1 ? step.again({ step: 'second' }) : step.moveTo('Created')
    })
    const kit = await LifecycleKit.open({ lifecycles: [lifecycle], uri: testServerUri() })
    try {
      await kit.insert('thing', { _id: 'a', phase: 'Creating', n: 1 })
      const crashed = kit.crash('Creating')
      await Promise.race([kit.untilIdle(), crashed])
      await crashed
      expect(await kit.insert('thing', { _id: 'a', n: 2 }, { onDuplicate: 'replaceWaiting' })).toMatchObject({
        kind: 'queued',
      })
      await kit.advance('1h')
      await kit.untilIdle()
      expect(seen).toEqual([
        [1, 1, undefined],
        [2, 2, undefined],
      ])
    } finally {
      await kit.close()
    }
  })

  test('a rule takes it when its holder is gone: the values go along', async () => {
    const { replica } = await during(
      async (_doc, step) => step.wait('rain'),
      () => owner().remove('a'),
    )
    await things(database.db).insertOne({
      ...{ _id: 'a', phase: 'Created', n: 1, state: 'Deleted', lockedAt: new Date(0), lockedBy: 'r~1#1.1', fence: 1 },
      progress: { since: new Date(), next: { set: { n: 2 }, at: new Date() } },
    })
    await replica.tick()
    expect(await stored()).toMatchObject({ phase: 'Deleting', n: 2 })
    expect((await stored())['progress']).not.toHaveProperty('next')
  })

  test('that its owner removes meanwhile is gone, with what was left for it; the next insert inserts', async () => {
    const { replica, seen } = await during(
      async (_doc, step) => step.moveTo('Created'),
      async () => {
        expect(await met(2, 'runAgain')).toEqual(queued)
        expect(await owner().remove('a')).toBe('done')
      },
    )
    await replica.runOnce()
    expect([await stored(), seen.length]).toEqual([null, 1])
    expect(await met(3, 'runAgain')).toEqual({ id: 'a', kind: 'inserted' })
  })

  test('beside others that end in the same way: each is recorded', async () => {
    const goOn = gate()
    let running = 0
    const all = gate()
    const lifecycle = thingWith(async (_doc, step) => {
      running += 1
      if (running === 20) all.open()
      await goOn.wait
      return step.moveTo('Created')
    })
    const replica = await prepared(lifecycle)
    const ids = Array.from({ length: 20 }, (_, i) => `t${i}`)
    await things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating', n: 1 })))
    const tick = replica.tick()
    await all.wait
    for (const _id of ids.slice(0, 7)) await owner().insert({ _id, n: 2 }, { onDuplicate: 'replaceWaiting' })
    goOn.open()
    await tick
    await replica.idle()
    expect(running).toBe(20)
    expect(
      await things(database.db).countDocuments({ phase: 'Created', n: 2, 'progress.next': { $exists: false } }),
    ).toBe(7)
    expect(await things(database.db).countDocuments({ phase: 'Created', n: 1 })).toBe(13)
  })

  test('values that the server refuses put it aside and stop nobody; a good insert that runs it again helps', async () => {
    await things(database.db).createIndex({ n: 1 }, { unique: true })
    await things(database.db).insertOne({ _id: 'taken', phase: 'Created', n: 2 })
    const { replica, seen } = await during(
      async (_doc, step) => step.wait('rain'),
      () => met(2, 'replaceWaiting', { effects: ['kept'] }),
    )
    expect(await stored()).toMatchObject({ n: 1, lockedAt: PARKED_AT, progress: { next: { set: { n: 2 } } } })
    expect(await met(2, 'replaceWaiting')).toEqual({ id: 'a', kind: 'parked' })
    expect(await met(3, 'runAgain')).toEqual({ id: 'a', kind: 'restarted' })
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Created', n: 3, effects: ['kept'] })
    expect((await stored())['progress']).not.toHaveProperty('next')
    expect(seen).toHaveLength(2)
  })

  test('what an owner has freed by force keeps what was left for it', async () => {
    const { replica } = await during(
      async (_doc, step) => step.moveTo('Created'),
      () => owner().remove('a'),
    )
    const held = { phase: 'Creating', n: 1, lockedBy: 'r~1#1.1', fence: 1, progress: { since: new Date() } }
    await things(database.db).insertOne({ _id: 'a', ...held, lockedAt: new Date(Date.now() + 3_600_000) })
    await met(2, 'replaceWaiting', { effects: ['left'] })
    expect(await owner().unpark('a', { force: true })).toBe('done')
    expect(await met(3, 'replaceWaiting')).toEqual({ id: 'a', kind: 'replaced' })
    expect(await stored()).toMatchObject({ n: 3, effects: ['left'] })
    expect((await stored())['progress']).not.toHaveProperty('next')
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Created', n: 3 })
  })
})
