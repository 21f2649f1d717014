import { describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { BSONRegExp, DBRef, type Document, Long, ObjectId, UUID } from 'mongodb'
import { Audit, Events, lifecycleOf, OwnerClient, Replica, silentLogger } from '../../src/index.js'
import { ownerOf } from '../../src/kubernetes/cluster/ownership.js'
import { awaitsIn, canBeId, idKey, parentIn, waitersIn } from '../../src/lock/index.js'
import { idsMeantBy } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { type Thing, thing, things, thingWith } from '../support/thing.js'

class Sly {
  constructor(private readonly stored: unknown) {}
  toBSON() {
    return this.stored
  }
}

/** What a filter would take for other documents than one, or for none that can be. */
const NO_IDS: [string, unknown][] = [
  ['an operator', { $gt: '' }],
  ['an operator beside a field', { a: 1, $ne: 1 }],
  ['an operator whose value is undefined', { $exists: undefined }],
  ['a document with an operator in it', { a: { $gt: '' } }],
  ['an array', ['a']],
  ['undefined', undefined],
  ['a regular expression', /./],
  ["a regular expression of BSON's", new BSONRegExp('.')],
  ['what becomes an operator when it is sent', new Sly({ $gt: '' })],
  ['what becomes a regular expression when it is sent', new Sly(/./)],
  ['a reference, whose fields begin with $', new DBRef('a', new ObjectId())],
  ['what says that it is a BSON type, and is none', { _bsontype: 'Shop', $gt: '' }],
  ['a Map', new Map([['$gt', '']])],
  ['half a character, which would be stored as another one', 'shop-\ud83d'],
]
const IDS = [
  ...['', 'a', '$gt', 'shop', 0, 1, -1.5, null, true, new Date(0), new ObjectId(), new UUID(), Long.MAX_VALUE],
  ...[{}, { a: 1 }, { a: { b: '$gt' } }, { a: [1] }, 7n],
]

describe('what can be an _id', () => {
  test.each(NO_IDS)('%s is none', (_name, id) => {
    expect(canBeId(id)).toBe(false)
  })
  test('any other value that is stored as what it is can be one', () => {
    expect(IDS.filter((id) => !canBeId(id))).toEqual([])
  })
})

interface Note {
  _id: string
}
const note = lifecycleOf<Note>().define({
  name: 'note',
  collection: 'Note',
  child: true,
  concurrency: 20,
  phases: { Waiting: { next: ['Sent'] }, Sent: { rest: true } },
})

describe('an _id that comes from data', () => {
  const database = useDatabase()
  const notes = () => database.db.collection<Document & { _id: string }>('Note')

  /** A note for each of some values, and what became of it. */
  async function ran(values: readonly unknown[], handler: (value: unknown, step: any) => Promise<any>) {
    const Waiting = async (doc: Note, step: any) => handler(values[Number(doc._id)], step)
    const lifecycles = [note.handle({ Waiting }), thingWith(async (_doc, step) => step.moveTo('Created'))]
    const replica = new Replica({ db: database.db, lifecycles, logger: silentLogger })
    await replica.prepare()
    await things(database.db).insertOne({ _id: 'a', phase: 'Created' })
    await notes().insertMany(values.map((_, i) => ({ _id: String(i), phase: 'Waiting' })))
    await replica.runOnce()
    await replica.stop()
    return notes().find().toArray()
  }

  test('is not waited for if it is none', async () => {
    const wrong = [...NO_IDS, ['null', null]].map(([, id]) => id)
    const found = await ran(wrong, async (id, step) => {
      const there = await step.waitFor(thing.at(id as never, 'Created'))
      return there.done ? step.moveTo('Sent') : step.wait(there.text)
    })
    expect(found).toHaveLength(wrong.length)
    for (const { phase, progress } of found) {
      expect(phase).toBe('Waiting')
      expect(progress.error.message).toMatch(/^waitFor: expected the _id of a document \(.*\), got /)
    }
    expect(await things(database.db).countDocuments({ progress: { $exists: true } })).toBe(0)
  })

  test('is not given to a child if it is none', async () => {
    const wrong = NO_IDS.map(([, id]) => id).filter((id) => id !== undefined)
    const found = await ran(wrong, async (_id, step) => {
      await step.children([note.child('left', { _id } as never)])
      return step.moveTo('Sent')
    })
    expect(found).toHaveLength(wrong.length)
    for (const { phase, progress } of found) {
      expect(phase).toBe('Waiting')
      expect(progress.error.message).toMatch(/child 'left': expected an _id that a document can have \(.*\), got /)
    }
  })

  test('written by hand as a parent or a waiter, it names no document', () => {
    for (const [, id] of NO_IDS) {
      const name = { lifecycle: 'note', id }
      expect(parentIn({ parent: { ...name, key: 'k', list: 'l' } })).toBeUndefined()
      expect(waitersIn({ waiters: [name, { lifecycle: 'note', id: 'n' }] })).toEqual([{ lifecycle: 'note', id: 'n' }])
      expect(awaitsIn({ awaits: { kind: 'document', ...name, phases: ['Sent'] } })).toBeUndefined()
    }
  })

  test('in the annotation of an object in a cluster, it names no document', () => {
    const labels = { 'phaselock.dev/lifecycle': 'note' }
    const named = (id: string) => ({ 'phaselock.dev/id': id, 'phaselock.dev/database': 'shop' })
    const owner = (id: string) => ownerOf({ metadata: { labels, annotations: named(id) } } as never)
    expect(owner('{"_id":"n"}')).toMatchObject({ id: 'n' })
    for (const id of ['{"$gt":""}', '{"$regularExpression":{"pattern":".","options":""}}', '["n"]'])
      expect(owner(`{"_id":${id}}`)).toBeUndefined()
  })

  test('written by hand as a pause, it pauses nothing, and no look fails', async () => {
    await ran([1], async (_id, step) => step.moveTo('Sent'))
    const pauses = [{ what: 'document', _id: { $gt: '' }, by: 'ana', since: new Date() }]
    await database.db.collection('phaselock.lifecycles').updateOne({ _id: 'note' as never }, { $set: { pauses } })
    await notes().insertOne({ _id: 'm', phase: 'Waiting' })
    const lifecycles = [note.handle({ Waiting: async (_doc, step) => step.moveTo('Sent') })]
    const replica = new Replica({ db: database.db, lifecycles, logger: silentLogger })
    await replica.prepare()
    await replica.runOnce()
    await replica.stop()
    expect(await notes().findOne({ _id: 'm' })).toMatchObject({ phase: 'Sent' })
  })

  test.each(NO_IDS)('is not looked for in the audit and the events: %s', async (_name, id) => {
    const asked = { documents: ['a', id] }
    await expect(new Audit(database.db).list(asked)).rejects.toThrow('documents')
    await expect(new Events(database.db).list(asked)).rejects.toThrow('documents')
  })

  const operators = ['$gt', '$gte', '$ne', '$in', '$exists', '$regex', '$not', '$elemMatch', '$type', '$expr', '$where']
  const values = fc.anything({ withDate: true, withBigInt: true, withMap: true, withNullPrototype: true, maxDepth: 2 })
  const anyValue = fc.oneof(
    ...[values, fc.constantFrom(...IDS, ...NO_IDS.map(([, id]) => id)), fc.string({ unit: 'binary' })],
    fc.tuple(fc.constantFrom(...operators), values).map(([name, value]) => ({ [name]: value })),
    fc.tuple(fc.constantFrom(...operators), values).map(([name, value]) => ({ a: { [name]: value } })),
    fc.tuple(fc.constantFrom(...operators), values).map(([name, value]) => new Sly({ [name]: value })),
  )

  test('is refused where a document is inserted with it, whatever is there', async () => {
    const owner = new OwnerClient<any>(database.db, thing.model, { doorbell: 'off' })
    for (const [, _id] of NO_IDS.filter(([, id]) => id !== undefined))
      for (const options of [{}, { onDuplicate: 'replaceWaiting' }, { onDuplicate: 'runAgain', dueIn: '1s' }] as const)
        await expect(owner.insert({ _id }, options as never)).rejects.toThrow(/_id|lifecycle|'_id/)
    expect(await things(database.db).countDocuments()).toBe(0)
  })

  test('whatever it is, an owner meets the document with this _id or none', async () => {
    const owner = new OwnerClient<Thing>(database.db, thing.model, { doorbell: 'off' })
    const all = IDS.map((_id) => ({ _id, phase: 'Created', n: 0 }))
    await things(database.db).insertMany(all as never[])
    await fc.assert(
      fc.asyncProperty(anyValue, async (id) => {
        const found = await owner.find(id as never).catch(refused)
        if (found) expect(idKey(found._id)).toBe(idKey(sent(id)))
        const verdict = await owner.setState(id as never, 'Deleted').catch(refused)
        const touched = await things(database.db).find({ state: 'Deleted' }).toArray()
        expect(touched.map(({ _id }) => idKey(_id))).toEqual(verdict === 'done' ? [idKey(sent(id))] : [])
        await things(database.db).updateMany({}, { $unset: { state: '' } })
      }),
      { numRuns: 200 },
    )
  })

  test('whatever text names it on a command line, it is an _id or refused', () => {
    const piece = fc.oneof(
      fc.constantFrom('{', '}', '"', ':', '$gt', '$oid', '$regex', '[', ']', '1', 'a', ' '),
      fc.json(),
    )
    const text = fc.oneof(
      fc.string(),
      fc.json(),
      fc.array(piece).map((all) => all.join('')),
    )
    fc.assert(
      fc.property(text, (one) => {
        try {
          expect(idsMeantBy(one).every(canBeId)).toBe(true)
        } catch (error) {
          expect(error).toMatchObject({ name: 'UsageError' })
        }
      }),
      { numRuns: 2_000 },
    )
  })
})

const refused = (error: Error) => {
  expect(error).toMatchObject({ name: 'InvalidOptions' })
}

/** As the server gets it. */
const sent = (id: unknown): unknown => (id instanceof Sly ? id.toBSON() : id)
