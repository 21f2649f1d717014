import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import type { Collection, Db, Document } from 'mongodb'
import {
  CLAIM_INDEX,
  candidateCursor,
  ensureLockIndexes,
  isDue,
  LIFECYCLES_COLLECTION,
  type LookRequest,
  Looks,
  PARKED_AT,
  ServerClock,
} from '../../src/lock/index.js'
import { systemClock } from '../../src/time/index.js'
import { type TestDatabase, testDatabase } from '../support/database.js'
import { LOCK_TIMEOUT_MS, serverNow, TERMS } from './fixture.js'

const DOCUMENTS = 100_000
const SLEEPING = 99_000
const FRESH = 800
const WOKEN = DOCUMENTS - SLEEPING - FRESH
const PHASES = ['Creating', 'Created', 'Starting', 'Started', 'Stopping', 'Stopped', 'Deleting', 'Deleted']

/** What a reader of the output sees: one line a command. */
const figures: { command: string; index: string; returned: number; keys: number }[] = []

function noted(command: string, index: string, explained: Document): { returned: number; keys: number } {
  const { nReturned: returned, totalKeysExamined: keys } = explained['executionStats']
  figures.push({ command, index, returned, keys })
  return { returned, keys }
}

/** Keys examined by every part of an aggregate, its `$unionWith`s included. */
function keysOf(explained: unknown): number[] {
  if (Array.isArray(explained)) return explained.flatMap(keysOf)
  if (typeof explained !== 'object' || explained === null) return []
  const { totalKeysExamined, ...rest } = explained as Document
  const below = Object.values(rest).flatMap(keysOf)
  return typeof totalKeysExamined === 'number' ? [totalKeysExamined, ...below] : below
}

describe('keys examined with 100,000 documents, of which 99,000 sleep, 800 are fresh and 200 woken', () => {
  let database: TestDatabase
  let db: Db
  const serverClock = new ServerClock(systemClock)
  let sound: Collection
  let multikey: Collection
  let resting: Collection

  /** On the server, which makes 100,000 documents in a second, and the indexes at the end; `fields` are expressions over `$n`. */
  async function fill(collection: Collection, fields: Document): Promise<void> {
    const numbers = [{ $project: { n: { $range: [0, DOCUMENTS] } } }, { $unwind: '$n' }]
    const made = [{ $project: { _id: '$n', ...fields } }, { $out: collection.collectionName }]
    await db
      .collection('Seed')
      .aggregate([...numbers, ...made])
      .toArray()
    await ensureLockIndexes(collection)
  }

  beforeAll(async () => {
    database = await testDatabase()
    db = database.db
    sound = db.collection('Sound')
    multikey = db.collection('Multikey')
    resting = db.collection('Resting')
    await db.collection('Seed').insertOne({})
    const now = (await serverNow(sound)).getTime()
    const updatedAt = { $subtract: [new Date(now), '$n'] }
    const woken = { $subtract: [new Date(now - 60_000), '$n'] }
    // Asleep until between 30 minutes and 32 minutes from now: in their own minutes, so that none comes due meanwhile.
    const sleeping = { $add: [new Date(now + 1_800_000), '$n'] }
    const below = (n: number) => ({ $lt: ['$n', n] })
    const lockedAt = { $cond: [below(FRESH), null, { $cond: [below(FRESH + WOKEN), woken, sleeping] }] }
    const mixed = { phase: 'Working', lockedAt, updatedAt }
    await fill(sound, mixed)
    await fill(multikey, mixed)
    // One array is enough, also after it has gone.
    await multikey.insertOne({ _id: 'array' as never, phase: 'Working', lockedAt: [new Date(0), new Date(1)] })
    await multikey.deleteOne({ _id: 'array' as never })
    const everyNth = (n: number, so: unknown, else_: unknown) => ({ $cond: [{ $mod: ['$n', n] }, else_, so] })
    await fill(resting, {
      phase: everyNth(2, 'Created', 'Started'),
      state: 'Running',
      lockedAt: everyNth(3, PARKED_AT, new Date(0)),
      updatedAt,
    })
  }, 600_000)
  // What was seen of the server's clock counts for a minute.
  beforeEach(async () => {
    const sentAtMs = systemClock.monotonicMs()
    serverClock.saw(await serverNow(sound), sentAtMs)
  })
  afterAll(async () => {
    await database.drop()
    const lines = figures.map(
      ({ command, index, returned, keys }) =>
        `${command.padEnd(44)} ${index.padEnd(9)} ${String(keys).padStart(6)} keys ${String(returned).padStart(5)} returned`,
    )
    process.stdout.write(`keys examined, 100,000 documents\n${lines.join('\n')}\n`)
  })

  /** What a look asks about the due documents of one phase. */
  const lookFor = ({ collectionName }: Collection) => {
    const looks = new Looks(db, systemClock, serverClock)
    const request = { lifecycle: 'x', collection: collectionName, terms: TERMS, phases: ['Working'], rules: [] }
    return db.collection(collectionName).aggregate([{ $match: looks.queries(request)[0]!.match }, { $limit: 1 }])
  }
  const bound = () => serverClock.dueBound(LOCK_TIMEOUT_MS)!
  const indexes: [string, () => Collection][] = [
    ['sound', () => sound],
    ['multikey', () => multikey],
  ]

  for (const [index, collection] of indexes) {
    test.each([
      ['fresh', 375, 375],
      ['fresh', 2_000, FRESH],
      ['woken', 125, 125],
      ['woken', 500, WOKEN],
    ] as const)(
      `candidates, ${index} index, %s, limit %d: %d documents for <= 1.2 keys each`,
      async (range, limit, n) => {
        const cursor = candidateCursor(collection(), TERMS, 'Working', range, { limit, dueBound: bound() })
        const { returned, keys } = noted(
          `candidates ${range}, limit ${limit}`,
          index,
          await cursor.explain('executionStats'),
        )
        expect(returned).toBe(n)
        expect(keys / returned).toBeLessThanOrEqual(1.2)
      },
    )

    test.each(['fresh', 'woken'] as const)(`candidates, ${index} index, %s, nothing due: <= 1 key`, async (range) => {
      await collection().updateMany({ $expr: isDue(TERMS) }, [{ $set: { phase: 'Put aside' } }], { hint: CLAIM_INDEX })
      try {
        const cursor = candidateCursor(collection(), TERMS, 'Working', range, { limit: 500, dueBound: bound() })
        const { returned, keys } = noted(
          `candidates ${range}, nothing due`,
          index,
          await cursor.explain('executionStats'),
        )
        expect(returned).toBe(0)
        expect(keys).toBeLessThanOrEqual(1)
        const looking = await lookFor(collection()).explain('executionStats')
        const lookKeys = keysOf(looking).reduce((sum, n) => sum + n, 0)
        figures.push({ command: 'look for due documents, nothing due', index, returned: 0, keys: lookKeys })
        expect(lookKeys).toBeLessThanOrEqual(1)
      } finally {
        await collection().updateMany({ phase: 'Put aside' }, { $set: { phase: 'Working' } })
      }
    })

    test(`look for due documents, ${index} index: <= 1 key`, async () => {
      const cursor = lookFor(collection())
      const keys = keysOf(await cursor.explain('executionStats')).reduce((sum, n) => sum + n, 0)
      figures.push({ command: 'look for due documents', index, returned: 1, keys })
      expect(keys).toBeLessThanOrEqual(1)
    })
  }

  test('negative control: $expr alone walks a multikey index', async () => {
    const cursor = multikey
      .find({ phase: 'Working', $expr: isDue(TERMS) })
      .hint(CLAIM_INDEX)
      .sort({ lockedAt: 1 })
      .limit(2_000)
    const { keys } = noted('$expr alone, limit 2000', 'multikey', await cursor.explain('executionStats'))
    expect(keys).toBeGreaterThan(DOCUMENTS * 0.9)
  })

  test.each([2, 6])(
    'a look for state rules of %d phases over 100,000 resting documents: <= 1 key a phase',
    async (n) => {
      const looks = new Looks(db, systemClock, serverClock)
      const rules = [{ when: 'Deleted', from: PHASES.slice(0, n), moveTo: 'Deleting' }]
      const [query] = looks.queries({ lifecycle: 'x', collection: 'Resting', terms: TERMS, phases: [], rules })
      const explained = await resting.aggregate([{ $match: query!.match }, { $limit: 1 }]).explain('executionStats')
      const keys = keysOf(explained).reduce((sum, one) => sum + one, 0)
      figures.push({ command: `look for a rule of ${n} phases`, index: 'sound', returned: 0, keys })
      expect(keys).toBeLessThanOrEqual(n)
    },
  )

  test("the whole look over ten lifecycles, as a tick runs it: at most 1 key a phase, a rule's phase and a lifecycle", async () => {
    const looks = new Looks(db, systemClock, serverClock)
    const lifecycles = Array.from({ length: 10 }, (_, n) => `lifecycle${n}`)
    await db
      .collection(LIFECYCLES_COLLECTION)
      .insertMany(lifecycles.map((_id) => ({ _id: _id as never, lockTimeout: 30_000 })))
    const rules = [
      { when: 'Deleted', from: PHASES.slice(0, 6), moveTo: 'Deleting' },
      { when: 'Stopped', from: ['Created', 'Started'], moveTo: 'Stopping' },
    ]
    const requests: LookRequest[] = lifecycles.map((lifecycle, n) => ({
      lifecycle,
      collection: ['Sound', 'Multikey', 'Resting'][n % 3]!,
      terms: TERMS,
      phases: ['Working', 'Starting', 'Deleting', 'Deleted'],
      rules,
    }))
    await looks.look(requests)
    const parts = keysOf(await looks.cursor(requests).explain('executionStats'))
    const keys = parts.reduce((sum, n) => sum + n, 0)
    figures.push({ command: 'the whole look over 10 lifecycles', index: 'all', returned: 0, keys })
    expect(parts).toHaveLength(1 + 10 * (4 + 2))
    expect(keys).toBeLessThanOrEqual(10 + 10 * (4 + 6 + 2))
  })
})
