import { describe, expect, test } from '@jest/globals'
import { BSON, type Document } from 'mongodb'
import { LIFECYCLES_COLLECTION, operationWrites, PARKED_AT, TASK_LOCK_INIT_TIME } from '../../src/lock/index.js'
import {
  answerQuestion,
  cancelStep,
  findDocument,
  OperationError,
  type PredictedAction,
  pauseWork,
  predict,
  removeDocument,
  type System,
  seenIn,
  setState,
  unparkDocument,
  wakeDocument,
  whyDocument,
} from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { randomNumbers } from '../support/random.js'
import { thing, thingOf, things } from '../support/thing.js'

const told = thingOf({ callbacks: ['onRemoved'] })
const legacy = thingOf({ legacyWriters: true })
const FAR = new Date('9999-11-30T23:59:30Z')
const ref = { id: 'a' }

describe('what an action would do', () => {
  const database = useDatabase()
  const systemOf = ({ model }: { readonly model: System['models'][number] }): System => ({
    ...{ db: database.db, models: [model], doorbell: 'off' as const },
  })
  const now = () => things(database.db).findOne({ _id: 'a' })

  /** Times of the server's that differ between two commands, as one word each. */
  const timeless = (fields: Document): unknown =>
    JSON.parse(
      JSON.stringify(BSON.EJSON.serialize(fields, { relaxed: true }), (_key, value) =>
        typeof value?.$date === 'string' && Math.abs(Date.parse(value.$date) - Date.now()) < 60_000 ? 'now' : value,
      ),
    )
  const pick = (document: Document | null, paths: readonly string[]) =>
    Object.fromEntries(
      paths.flatMap((path) => {
        const value = path.split('.').reduce<Document | undefined>((at, name) => at?.[name], document ?? {})
        return value === undefined ? [] : [[path, value]]
      }),
    )

  const act = (system: System, request: PredictedAction, seen?: string): Promise<unknown> => {
    switch (request.action) {
      case 'wake':
        return wakeDocument(system, ref, { ...(seen && { seen }) })
      case 'unpark':
        return unparkDocument(system, ref, { by: 'ana', force: request.force, seen })
      case 'set-state':
        return setState(system, ref, request.state, { seen })
      case 'answer':
        return answerQuestion(system, ref, { option: request.option, by: 'ana', seen })
      case 'remove':
        return removeDocument(system, ref, { force: request.force, seen })
      default:
        throw new Error(request.action)
    }
  }

  test('of random documents and actions: as it is then, and nothing is written before', async () => {
    const random = randomNumbers(20_261_126)
    const one = <T>(...of: readonly T[]): T => of[Math.floor(random() * of.length)]!
    const soon = (ms: number) => new Date(Date.now() + ms)
    const question = { id: 'q', question: 'Ship?', options: ['yes', 'no'], to: [], askedAt: new Date(0) }
    const counts = { change: 0, nothing: 0, refused: 0 }
    for (let round = 0; round < 100; round += 1) {
      const lifecycle = one(thing, thing, told, legacy)
      const system = systemOf(lifecycle)
      const lockedAt = one<unknown>(
        undefined,
        null,
        TASK_LOCK_INIT_TIME,
        soon(-900_000),
        soon(-5_000),
        soon(900_000),
        PARKED_AT,
        FAR,
      )
      const document: Document = {
        phase: one('Creating', 'Created', 'Deleting', 'Odd'),
        ...(lockedAt === undefined ? {} : { lockedAt }),
        ...one({}, {}, { lockedBy: 'api~1#2.3' }, { lockedBy: 'api~1#2.3' }),
        ...one({}, { state: 'Running' }, { state: 'Deleted' }),
        ...one({}, { fence: 7 }),
        ...one<Document>(
          {},
          {
            progress: {
              attempts: 3,
              claims: 1,
              error: { name: 'E', message: 'x' },
              history: [{ at: soon(-9_000), outcome: 'park' }],
            },
          },
          { progress: { waitingFor: 'rain', resumeAt: soon(900_000 + 30_000) } },
          { progress: { question, since: new Date(0) } },
          { progress: { next: { set: { n: 1, state: 'Stopped' }, by: 'ben', at: soon(-1_000) } } },
          { progress: [1] },
        ),
      }
      const request = one<PredictedAction>(
        { action: 'wake' },
        { action: 'unpark', by: 'ana' },
        { action: 'unpark', by: 'ana', force: true },
        { action: 'set-state', state: 'Deleted' },
        { action: 'answer', option: one('yes', 'maybe'), by: 'ana' },
        { action: 'remove', force: one(true, false) },
      )
      await things(database.db).deleteMany({})
      await things(database.db).insertOne({ _id: 'a', ...document })
      const before = await now()
      const predicted = await predict(system, { ...request, ref })
      expect(await now()).toEqual(before)
      counts[predicted.would] += 1
      const about = [round, request, document]
      const done = await act(system, request, predicted.seen).then(
        () => true,
        (error) => {
          if (!(error instanceof OperationError)) throw error
          return false
        },
      )
      const after = await now()
      expect([about, done]).toEqual([about, predicted.would !== 'refused'])
      if (predicted.would !== 'change') expect([about, after]).toEqual([about, before])
      else if (!predicted.why) expect([about, after]).toEqual([about, null])
      else {
        const paths = Object.keys({ ...predicted.before, ...predicted.after })
        expect([about, timeless(pick(after, paths))]).toEqual([about, timeless(predicted.after)])
        // All that it doesn't name is as it was.
        const others = Object.keys({ ...before, ...after }).filter(
          (field) => !paths.some((path) => path.split('.')[0] === field),
        )
        expect([about, pick(after, others)]).toEqual([about, pick(before, others)])
        // And the judgement of the result is that of the document as it is then.
        const { blockedBy, condition } = await whyDocument(system, ref).catch(() => predicted.why!)
        expect([about, predicted.why.condition, predicted.why.blockedBy]).toEqual([about, condition, blockedBy])
        // The same digest again changes nothing.
        if (predicted.before['lockedAt'] || predicted.before['state']) {
          await expect(act(system, request, predicted.seen)).rejects.toThrow(/has changed since|removed/)
          expect(await now()).toEqual(after)
        }
      }
    }
    for (const count of Object.values(counts)) expect(count).toBeGreaterThan(2)
  })

  test('a redo and a migration, as operations do them', async () => {
    const system = systemOf(thing)
    await things(database.db).insertOne({
      _id: 'a',
      phase: 'Creating',
      lockedAt: PARKED_AT,
      progress: { attempts: 4, error: { message: 'x' } },
    })
    const terms = { lockTimeoutMs: 30_000, leaseMs: 30_000, legacyWriters: false, progress: 'progress' } as never
    const operating = { operation: 'redo', by: 'ana', where: {} }
    for (const request of [
      { action: 'migrate', by: 'ana', phase: 'Deleting' },
      { action: 'redo', by: 'ana', phase: 'Creating', set: { n: 5 } },
    ] as const) {
      const predicted = await predict(system, { ...request, ref })
      const named = { ...operating, operation: request.action }
      const [filter, update] =
        request.action === 'migrate'
          ? operationWrites.migrate(terms, 'a', named, request.phase)
          : operationWrites.redo(terms, 'a', named, { step: undefined, ...request })
      expect((await things(database.db).updateOne(filter as never, update)).modifiedCount).toBe(1)
      const paths = Object.keys(predicted.after)
      expect(timeless(pick(await now(), paths))).toEqual(timeless(predicted.after))
      expect(paths).toContain('phase')
    }
  })

  test('a cancel, a pause and its end: what they ask for is judged as if it were in force', async () => {
    const system = systemOf(thing)
    await database.db
      .collection<{ _id: string }>(LIFECYCLES_COLLECTION)
      .insertOne({ _id: 'thing', lockTimeout: 30_000 } as never)
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', lockedAt: new Date(), lockedBy: 'api~1#2.3' })
    const lease = async (why: Awaited<ReturnType<typeof predict>>['why']) =>
      why?.terms.find(({ name }) => name === 'lease')?.evidence
    const predicted = await predict(system, { action: 'cancel', by: 'ana', reason: 'stuck', ref })
    expect(predicted).toMatchObject({ would: 'change', before: {}, after: {} })
    expect(await lease(predicted.why)).toMatchObject({ askedToStop: { by: 'ana', reason: 'stuck' } })
    expect(await lease(await whyDocument(system, ref))).toMatchObject({ askedToStop: null })
    await cancelStep(system, ref, { by: 'ana', reason: 'stuck', waitMs: 0 })
    expect(await lease(await whyDocument(system, ref))).toMatchObject({ askedToStop: { by: 'ana' } })

    await things(database.db).replaceOne({ _id: 'a' }, { phase: 'Creating' })
    expect(await predict(system, { action: 'resume', by: 'ana', ref })).toMatchObject({ would: 'refused' })
    expect(await predict(system, { action: 'pause', by: 'ana', ref })).toMatchObject({
      would: 'change',
      why: { blockedBy: 'pause' },
    })
    expect(await whyDocument(system, ref)).not.toMatchObject({ blockedBy: 'pause' })
    await pauseWork(system, { lifecycle: 'thing', id: 'a', by: 'ana' })
    expect(await whyDocument(system, ref)).toMatchObject({ blockedBy: 'pause' })
    expect((await predict(system, { action: 'resume', by: 'ana', ref })).why?.blockedBy).not.toBe('pause')
    expect(await predict(system, { action: 'cancel', ref })).toMatchObject({ would: 'refused' })
    await pauseWork(system, { lifecycle: 'thing', id: 'a', by: 'ben' })
    expect(await predict(system, { action: 'resume', by: 'ana', of: 'ben', ref })).toMatchObject({
      text: 'the pause by ben would end',
    })
    expect(await predict(system, { action: 'resume', by: 'ana', of: 'cem', ref })).toMatchObject({ would: 'refused' })
  })

  test('two operators at once, with what both have seen: one of them acts', async () => {
    const system = systemOf(thing)
    const actions: readonly ((seen: string) => Promise<unknown>)[] = [
      (seen) => unparkDocument(system, ref, { by: 'ana', seen }),
      (seen) => setState(system, ref, 'Deleted', { seen }),
      (seen) => removeDocument(system, ref, { seen }),
    ]
    for (let round = 0; round < 20; round += 1) {
      await things(database.db).deleteMany({})
      await things(database.db).insertOne({ _id: 'a', phase: 'Creating', lockedAt: PARKED_AT, progress: {} })
      const seen = seenIn(system, await findDocument(system, ref))
      const ended = await Promise.allSettled(actions.map((action) => action(seen)))
      expect(ended.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    }
  })
})
