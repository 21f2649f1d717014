import { describe, expect, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { BSON, Long } from 'mongodb'
import { isAsSeen, isPlain, PARKED_AT, seenOf } from '../../src/lock/index.js'
import {
  answerQuestion,
  cancelStep,
  findDocument,
  removeDocument,
  type System,
  seenIn,
  setState,
  unparkDocument,
  wakeDocument,
} from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { thing } from '../support/thing.js'

const IN_AN_HOUR = new Date(Date.now() + 3_600_000)
const question = { id: 'q', question: 'Ship it?', options: ['yes', 'no'], askedAt: new Date(0), to: [] }
const asking = { lockedAt: new Date('9999-11-30T23:59:30Z'), progress: { question } }
const parked = { lockedAt: PARKED_AT, progress: { at: new Date(1_000), history: [] } }
const asleep = { lockedAt: IN_AN_HOUR, progress: { waitingFor: 'rain' } }

describe('an action on a document as it was seen', () => {
  const database = useDatabase()
  const system = (): System => ({ db: database.db, models: [thing.model] })
  const things = () => database.db.collection('Thing') as unknown as Collection<{ _id: string | number } & Document>
  const ref = { id: 'a' }
  const now = () => things().findOne({ _id: 'a' })
  const seen = async () => seenIn(system(), await findDocument(system(), ref))
  const refusal = { name: 'Refused', obstacle: { reason: 'changedSince', lifecycle: 'thing', id: 'a' } }

  const actions: readonly (readonly [string, Document, (seen: string, by?: string) => Promise<unknown>])[] = [
    ['wake', asleep, (seen) => wakeDocument(system(), ref, { seen })],
    ['unpark', parked, (seen, by = 'ana') => unparkDocument(system(), ref, { by, seen })],
    ['set-state', asleep, (seen) => setState(system(), ref, 'Deleted', { seen })],
    ['remove', asleep, (seen) => removeDocument(system(), ref, { seen })],
    ['answer', asking, (seen, by = 'ana') => answerQuestion(system(), ref, { option: 'yes', by, seen })],
  ]

  test.each(actions)('%s: done if nothing has changed, and never twice', async (_name, document, act) => {
    await things().insertOne({ _id: 'a', phase: 'Creating', ...document })
    const before = await seen()
    const done = await Promise.allSettled([act(before, 'ana'), act(before, 'ben'), act(before, 'cem')])
    expect(done.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    const why = done.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
    for (const error of why) expect(['changedSince', 'noDocument']).toContain(error.obstacle.reason)
  })

  test.each(actions)('%s: changed since, so nothing is done', async (_name, document, act) => {
    const changes: readonly Document[] = [
      { phase: 'Deleting' },
      { state: 'Running' },
      { lockedAt: new Date(IN_AN_HOUR.getTime() - 5) },
      { lockedBy: 'api~5f3a9c#7.2' },
      { fence: 8 },
      { 'progress.at': new Date(2_000) },
    ]
    for (const change of changes) {
      await things().deleteMany({})
      await things().insertOne({ _id: 'a', phase: 'Creating', fence: 7, ...document })
      const before = await seen()
      await things().updateOne({ _id: 'a' }, { $set: change })
      const stored = await now()
      const error = await act(before).then(
        () => undefined as never,
        (thrown) => thrown,
      )
      expect(error).toMatchObject(refusal)
      expect(error.obstacle.changed).toEqual(Object.keys(change))
      expect(error.message).toContain(`has changed since it was seen (${Object.keys(change)[0]}), so nothing was done`)
      expect(await now()).toEqual(stored)
      expect(error.obstacle.seen).toBe(await seen())
    }
  })

  test('what is parked again for another reason is not unparked, and it says by whom', async () => {
    const history = (reason: string) => [
      { at: new Date(), outcome: 'park', reason, by: 'api~5f3a9c#7.2', from: 'Creating' },
    ]
    await things().insertOne({
      _id: 'a',
      phase: 'Creating',
      fence: 7,
      lockedAt: PARKED_AT,
      progress: { at: new Date(1_000), history: history('no ink') },
    })
    const before = await seen()
    await things().updateOne(
      { _id: 'a' },
      { $set: { fence: 8, progress: { at: new Date(2_000), history: history('no paper') } } },
    )
    const error = await unparkDocument(system(), ref, { by: 'ana', seen: before }).then(
      () => undefined as never,
      (thrown) => thrown,
    )
    expect(error).toMatchObject({
      ...refusal,
      message: expect.stringMatching(
        /\(fence, progress\.at\), so nothing was done; its last recorded change: park \(no paper\), by api~5f3a9c#7\.2, /,
      ),
    })
    expect(error.obstacle.last).toMatchObject({ by: 'api~5f3a9c#7.2', did: 'park (no paper)' })
  })

  test('the audit knows of what leaves no history', async () => {
    await things().insertOne({ _id: 'a', phase: 'Creating', ...asleep })
    const before = await seen()
    await wakeDocument({ ...system(), audit: { by: 'ben', reason: 'rain' } }, ref)
    const audited = { ...system(), audit: { by: 'ana' } }
    const error = await wakeDocument(audited, ref, { seen: before }).then(
      () => undefined as never,
      (thrown) => thrown,
    )
    expect(error.obstacle).toMatchObject({ changed: ['lockedAt'], last: { by: 'ben', did: 'wake (rain)' } })
  })

  test('a step is asked to stop once, and only under the claim that was seen', async () => {
    await database.db
      .collection<{ _id: string }>('phaselock.lifecycles')
      .insertOne({ _id: 'thing', lockTimeout: 30_000 } as never)
    const held = (claim: number) => ({ lockedAt: new Date(), lockedBy: `api~5f3a9c#${claim}.1`, fence: claim })
    await things().insertOne({ _id: 'a', phase: 'Creating', ...held(7) })
    const before = await seen()
    const cancel = (by: string) => cancelStep(system(), ref, { by, waitMs: 0, seen: before })
    const both = await Promise.allSettled([cancel('ana'), cancel('ben')])
    const [lost] = both.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
    expect(both.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    expect(lost).toMatchObject({ ...refusal, message: expect.stringMatching(/cancel, by (ana|ben)/) })
    await things().updateOne({ _id: 'a' }, { $set: held(8) })
    await expect(cancel('cem')).rejects.toMatchObject(refusal)
    const entry = await database.db.collection('phaselock.lifecycles').findOne({})
    expect(entry?.['cancels']).toHaveLength(1)
  })

  test('a renewal changes nothing that was seen, its end does', async () => {
    const entries = database.db.collection<{ _id: string }>('phaselock.lifecycles')
    await entries.insertOne({ _id: 'thing', lockTimeout: 30_000 } as never)
    const renew = () => things().updateOne({ _id: 'a' }, { $set: { lockedAt: new Date(Date.now() + 5_000) } })
    await things().insertOne({
      _id: 'a',
      phase: 'Creating',
      lockedAt: new Date(),
      lockedBy: 'api~5f3a9c#7.1',
      fence: 7,
    })
    const before = await seen()
    const asRead = isAsSeen((await now())!, { progress: 'progress' })
    await renew()
    expect(await seen()).toBe(before)
    expect(await things().countDocuments(asRead as never)).toBe(1)
    expect(await cancelStep(system(), ref, { by: 'ana', waitMs: 0, seen: before })).toMatchObject({ ended: false })
    await renew()
    expect(await setState(system(), ref, 'Deleted', { seen: before })).toMatchObject({ changed: true })
    const held = await seen()
    const heldAsRead = isAsSeen((await now())!, { progress: 'progress' })
    for (const change of [{ $unset: { lockedBy: 1 } }, { $set: { lockedAt: PARKED_AT } }]) {
      const was = (await now())!
      await things().updateOne({ _id: 'a' }, change as never)
      expect(await seen()).not.toBe(held)
      expect(await things().countDocuments(heldAsRead as never)).toBe(0)
      await things().replaceOne({ _id: 'a' }, was)
    }
  })

  test('what is no digest is refused', async () => {
    await things().insertOne({ _id: 'a', phase: 'Creating', ...asleep })
    await expect(wakeDocument(system(), ref, { seen: 'abc' })).rejects.toMatchObject({ name: 'UsageError' })
  })

  test('documents of any shape can be matched as they were read, and by no other', async () => {
    const values = [
      undefined,
      null,
      'x',
      '$phase',
      7,
      Long.fromString('9007199254740993'),
      new Date(5),
      [1],
      { a: 1 },
      PARKED_AT,
    ]
    const odd: Document[] = [
      ...values.flatMap((value) =>
        ['phase', 'state', 'lockedAt', 'lockedBy', 'fence', 'progress'].map((field) => ({ [field]: value })),
      ),
      ...values.map((at) => ({ progress: { at } })),
      { progress: [{ at: 1 }] },
    ]
    const terms = { progress: 'progress' }
    const filled = odd.map((one, i) => ({
      _id: i,
      ...Object.fromEntries(Object.entries(one).filter(([, value]) => value !== undefined)),
    }))
    await things().insertMany(filled)
    // Beyond the dates of JavaScript.
    await things().updateOne({ _id: 0 }, [{ $set: { lockedAt: { $toDate: Long.fromString('9000000000000000') } } }])
    const read = await things().find().toArray()
    for (const document of read) {
      const matched = await things()
        .find(isAsSeen(document, terms) as never)
        .project({ _id: 1 })
        .toArray()
      const of = (one: Document) => [seenOf({ ...one, _id: 0 }, terms), isPlain(one['progress'])].join()
      const same = read.filter((other) => of(other) === of(document))
      expect([document, matched.map(({ _id }) => _id)]).toEqual([document, same.map(({ _id }) => _id)])
    }
    expect(seenOf({ _id: 1 }, terms)).not.toBe(seenOf({ _id: 2 }, terms))
    expect(seenOf({ _id: 1, fence: 1n }, terms)).toBe(seenOf({ _id: 1, fence: new BSON.Int32(1) }, terms))
  })
})
