import { describe, expect, test } from '@jest/globals'
import { type Collection, type Document, MaxKey, Timestamp } from 'mongodb'
import {
  isDue,
  isParked,
  leaseStateExpression,
  leaseStateOf,
  NEVER_DUE,
  PARKED,
  PARKED_AT,
  TASK_LOCK_INIT_TIME,
  termsOf,
  wasPutToSleep,
} from '../../src/lock/index.js'
import { isNotHeld, PUT_TO_SLEEP } from '../../src/lock/lease/lease-state.js'
import { useDatabase } from '../support/database.js'
import { LOCK_TIMEOUT_MS, lockedCollection, PHASE, put, serverNow, TERMS } from './fixture.js'

const TOKENS: [string, Document][] = [
  ['', {}],
  [' null', { lockedBy: null }],
  [' held', { lockedBy: 'a~1#1.1' }],
]

/** What `lockedAt` may hold; the moments are far enough from now that both judgements see the same. */
const TIMES: [string, unknown][] = [
  ['none', '$$REMOVE'],
  ['null', null],
  ['a string', 'x'],
  ['a number', 5],
  ['epoch', TASK_LOCK_INIT_TIME],
  ['just before epoch', new Date(-1)],
  ['woken', { $subtract: ['$$NOW', 2 * LOCK_TIMEOUT_MS] }],
  ['recent', '$$NOW'],
  ['asleep', { $add: ['$$NOW', 3_600_000] }],
  ['parked', PARKED_AT],
  ['after parked', new Date('+012000-01-01')],
  ['a timestamp', new Timestamp({ t: 1, i: 1 })],
  ['MaxKey', new MaxKey()],
]

describe('whether a document is due, held, asleep or parked', () => {
  const database = useDatabase()

  async function stored(): Promise<{ collection: Collection; documents: Document[]; now: Date }> {
    const collection = await lockedCollection(database.db)
    await put(
      collection,
      ...TIMES.flatMap(([time, lockedAt]) =>
        TOKENS.map(([token, fields]) => ({ _id: `${time}${token}`, phase: PHASE, lockedAt, ...fields })),
      ),
    )
    return { collection, documents: await collection.find().toArray(), now: await serverNow(collection) }
  }

  const matching = async (collection: Collection, filter: Document) =>
    (await collection.find(filter).toArray()).map(({ _id }) => String(_id)).sort()

  test('this process and the server judge alike', async () => {
    const { collection, documents, now } = await stored()
    const judged = new Map(documents.map((one) => [String(one['_id']), leaseStateOf(one, TERMS, now).kind]))
    const idsOf = (...kinds: string[]) => [...judged].filter(([, kind]) => kinds.includes(kind)).map(([id]) => id)
    const rows = await collection
      .aggregate<{ _id: string; state: string }>([{ $project: { state: leaseStateExpression(TERMS) } }])
      .toArray()
    for (const { _id, state } of rows) {
      const kind = judged.get(_id)
      // Counts tell nothing of those that come never due: the repair sees to them.
      if (kind !== 'neverDue' && !_id.startsWith('after parked')) expect([_id, state]).toEqual([_id, kind])
    }
    expect(await matching(collection, { $expr: isDue(TERMS) })).toEqual(idsOf('due').sort())
    expect(await matching(collection, { $or: Object.values(NEVER_DUE) })).toEqual(
      [...idsOf('neverDue'), 'after parked', 'after parked null'].sort(),
    )
    const free = documents.filter((one) => one['lockedBy'] == null).map(({ _id }) => String(_id))
    expect(await matching(collection, isNotHeld(TERMS))).toEqual([...new Set([...free, ...idsOf('due')])].sort())
    expect(idsOf('held').sort()).toEqual(['asleep held', 'recent held'])
  })

  test('filters say what the judgements of a read document say', async () => {
    const { collection, documents } = await stored()
    const those = (is: (document: Document) => boolean) => documents.filter(is).map(({ _id }) => String(_id))
    expect(await matching(collection, PUT_TO_SLEEP)).toEqual(those(wasPutToSleep).sort())
    const parked = those(isParked).filter((id) => !id.startsWith('after'))
    expect(await matching(collection, PARKED)).toEqual(parked.sort())
  })

  test('beside writers of the old kind only what says so sleeps', async () => {
    const { collection, now } = await stored()
    const terms = termsOf(LOCK_TIMEOUT_MS, { legacyWriters: true })
    const resumeAt = { $add: ['$lockedAt', LOCK_TIMEOUT_MS] }
    await collection.updateOne({ _id: 'asleep' as never }, [{ $set: { progress: { resumeAt } } }])
    const judged = async (id: string) => {
      const document = (await collection.findOne({ _id: id as never }))!
      return [
        leaseStateOf(document, terms, now).kind,
        await collection.countDocuments({ _id: id as never, ...isNotHeld(terms) }),
      ]
    }
    expect(await judged('asleep')).toEqual(['asleep', 1])
    expect(await judged('asleep null')).toEqual(['held', 0])
    expect(await judged('parked')).toEqual(['parked', 1])
    expect(await judged('woken held')).toEqual(['due', 1])
  })
})
