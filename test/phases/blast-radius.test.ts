import { describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { Binary, BSONRegExp, Code, Decimal128, type Document, Long, MaxKey, ObjectId, Timestamp } from 'mongodb'
import type { BrokenDocument, Outcome } from '../../src/index.js'
import { idKey } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'

/** PHASELOCK_BLAST_RUNS=500 looks further; PHASELOCK_BLAST_SEED repeats a run. */
const RUNS = Number(process.env['PHASELOCK_BLAST_RUNS'] ?? 5)
const SEED = Number(process.env['PHASELOCK_BLAST_SEED'] ?? Math.floor(Math.random() * 0x7fffffff))

/** One of every kind of value that BSON has and the driver reads. */
const scalar: fc.Arbitrary<unknown> = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 50 }),
  fc.double({ noNaN: true }),
  fc.integer(),
  fc.boolean(),
  fc.date({ noInvalidDate: true }),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((n) => Long.fromBigInt(n)),
  fc.uint8Array({ maxLength: 40 }).map((bytes) => new Binary(bytes)),
  fc.uint8Array({ minLength: 12, maxLength: 12 }).map((bytes) => new ObjectId(bytes)),
)
const exotic: fc.Arbitrary<unknown> = fc.constantFrom(
  null,
  /x/,
  new Code('x'),
  new MaxKey(),
  new Timestamp({ t: 1, i: 1 }),
  Decimal128.fromString('1.5'),
)
/** `__proto__` and names like array indexes come to JavaScript as something else: they have tests of their own. */
const fieldName = fc.stringMatching(/^[a-z][a-zA-Z_.$ ]{0,8}$/).filter((name) => name !== '__proto__')
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    scalar,
    exotic,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(fieldName, tie('value'), { maxKeys: 4 }),
  ),
}))
const id = fc.oneof(
  scalar,
  fc.dictionary(fieldName, scalar, { maxKeys: 3 }),
  fc.nat(200_000).map((n) => 'x'.repeat(n)),
)

/** What a document is like, and what is to become of it. */
const KINDS = {
  good: { fields: {}, created: true, told: undefined },
  unreadable: { fields: { match: new BSONRegExp('(?P<id>\\d+)', '') }, created: false, told: 'unreadable' },
  refusing: { fields: { strict: true }, created: false, told: 'validator' },
  mended: { fields: { lockedAt: 'x' }, created: true, told: 'lockedAt' },
  owners: { fields: { progress: 'mine' }, created: false, told: 'progress' },
  throws: { fields: { does: 'throw' }, created: false, told: undefined },
  garbage: { fields: { does: 'garbage' }, created: false, told: undefined },
} as const
type Kind = keyof typeof KINDS

const documents = fc.uniqueArray(
  fc.record({
    _id: id,
    kind: fc.oneof(
      { weight: 3, arbitrary: fc.constant<Kind>('good') },
      fc.constantFrom(...(Object.keys(KINDS) as Kind[])),
    ),
    own: value,
    thrown: fc.oneof(
      value,
      fc.string().map((message) => new Error(message)),
    ),
  }),
  { selector: ({ _id }) => idKey(_id), minLength: 1, maxLength: 60 },
)

describe('whatever a collection holds and handlers do', () => {
  const database = useDatabase()

  test(`those without fault are Created in one run, exactly the others are told (seed ${SEED})`, async () => {
    const validator = { $or: [{ strict: { $exists: false } }, { lockedBy: { $exists: false } }] }
    await database.db.createCollection('Thing', { validator })
    const property = fc.asyncProperty(documents, async (all) => {
      const collection = things(database.db)
      await collection.deleteMany({})
      const stored = all.map(({ _id, kind, own }) => ({ _id, phase: 'Creating', kind, own, ...KINDS[kind].fields }))
      await collection.insertMany(stored as never)
      const thrown = new Map(all.map((one) => [idKey(one._id), one.thrown]))
      const told: BrokenDocument[] = []
      const replica = replicaOf(
        database.db,
        thingWith(async (doc, step) => {
          const { does } = doc as Document
          if (does === 'throw') throw thrown.get(idKey(doc._id))
          return does === 'garbage' ? (thrown.get(idKey(doc._id)) as Outcome<never, never>) : step.moveTo('Created')
        }),
        { observer: { broken: (event) => void told.push(event) } },
      )
      await replica.runOnce()
      await replica.stop()
      const found = await collection
        .find({}, { bsonRegExp: true, projection: { phase: 1, kind: 1, progress: 1 } })
        .toArray()
      expect(found).toHaveLength(all.length)
      const outcomes = found.map(({ _id, phase, kind, progress }) => {
        const about = told.filter((event) => idKey(event.id) === idKey(_id)).map(({ reason }) => reason)
        return { kind, created: phase === 'Created', told: about, failed: progress?.attempts === 1 }
      })
      expect(outcomes).toEqual(
        outcomes.map(({ kind }) => {
          const { created, told: reason } = KINDS[kind as Kind]
          const failed = kind === 'throws' || kind === 'garbage'
          return { kind, created, told: reason === undefined ? [] : [reason], failed }
        }),
      )
    })
    await fc.assert(property, { seed: SEED, numRuns: RUNS, endOnFailure: false })
  })
})
