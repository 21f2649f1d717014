import { describe, expect, test } from '@jest/globals'
import { BSON, type Collection, type Document, MaxKey, ObjectId } from 'mongodb'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from '../../src/lock/index.js'
import {
  addDocument,
  findDocument,
  listDocuments,
  NotFound,
  Refused,
  removeDocument,
  type System,
  setState,
  showDocument,
  UsageError,
  unparkDocument,
  wakeDocument,
} from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { thing, thingOf } from '../support/thing.js'

const IN_AN_HOUR = new Date(Date.now() + 3_600_000)
const HELD = { lockedAt: IN_AN_HOUR, lockedBy: 'api~5f3a9c#7.2' }
const ASLEEP = { lockedAt: IN_AN_HOUR, progress: { waitingFor: 'rain' } }

describe('operations on documents', () => {
  const database = useDatabase()
  const system = (more: Partial<System> = {}): System => ({ db: database.db, models: [thing.model], ...more })
  const things = () => database.db.collection('Thing') as unknown as Collection<{ _id: unknown } & Document>
  const thingNow = (_id: string) => things().findOne({ _id } as never)

  test('what they answer is plain data: it survives Extended JSON', async () => {
    const id = new ObjectId()
    await things().insertMany([
      { _id: id, phase: 'Creating', ...ASLEEP },
      { _id: 'due', phase: 'Creating', updatedAt: new Date(0) },
    ])
    const answers = [
      await listDocuments(system(), { lifecycle: 'thing' }),
      await showDocument(system(), { id: `${id}` }),
      await setState(system(), { id: 'due' }, 'Deleted'),
      await wakeDocument(system(), { id: `${id}` }),
    ]
    for (const answer of answers) {
      const text = BSON.EJSON.stringify(answer, { relaxed: false })
      expect(BSON.EJSON.stringify(BSON.EJSON.parse(text, { relaxed: false }), { relaxed: false })).toBe(text)
    }
  })

  test('list: with what each does, filtered, limited; a phase that nobody knows is refused with the known ones', async () => {
    await things().insertMany([
      { _id: 'a', phase: 'Creating' },
      { _id: 'b', phase: 'Creating', ...HELD },
      { _id: 'c', phase: 'Created', state: 'Deleted' },
      { _id: 'd', phase: 'Deleting', lockedAt: PARKED_AT },
      { _id: 'e', phase: 'Creatng' },
    ])
    const list = async (options: object) => {
      const { documents, more } = await listDocuments(system(), { lifecycle: 'thing', ...options })
      return [documents.map(({ document, condition }) => `${document['_id']} ${condition.kind}`), more]
    }
    expect(await list({ phase: 'Creating' })).toEqual([['a due', 'b held'], false])
    expect(await list({ phase: 'Creating', limit: 1 })).toEqual([['a due'], true])
    expect(await list({ parked: true })).toEqual([['d parked'], false])
    expect(await list({ state: 'Deleted' })).toEqual([['c resting'], false])
    expect(await list({ phase: 'Creatng' })).toEqual([['e unknownPhase'], false])
    const unknown = await list({ phase: 'Craeting' }).catch((error) => error)
    expect(unknown).toBeInstanceOf(UsageError)
    expect(unknown).toMatchObject({
      problem: expect.stringMatching(/^expected a phase of thing \(Creating, .*'Craeting'; did you mean 'Creating'\?$/),
      obstacle: { reason: 'unknownPhase', got: 'Craeting', known: ['Creating', 'Created', 'Deleting', 'Deleted'] },
    })
  })

  test('show: a sentence, also of those of other lifecycles with the same _id', async () => {
    const child = thingOf({ name: 'child', collection: 'Child' })
    await things().insertOne({ _id: 'a', phase: 'Creating', ...ASLEEP })
    await database.db.collection<{ _id: string }>('Child').insertOne({ _id: 'a', phase: 'Created' } as never)
    const models = [thing.model, child.model]
    expect(await showDocument(system({ models }), { id: 'a' })).toMatchObject({
      lifecycle: 'thing',
      document: { _id: 'a' },
      condition: { kind: 'sleeping' },
      explanation: expect.stringMatching(/^Sleeps, due .*, waiting for 'rain'/),
      refusal: undefined,
      also: [{ lifecycle: 'child', explanation: expect.stringMatching(/^Rests in Created/) }],
    })
    expect(await findDocument(system({ models }), { id: 'a', lifecycle: 'child' })).toMatchObject({ also: [] })
  })

  test('an _id that nothing has, several have, or nobody can read', async () => {
    await things().insertMany([
      { _id: 42, phase: 'Creating' },
      { _id: '42', phase: 'Creating' },
    ])
    const failure = (id: string, lifecycle?: string) =>
      showDocument(system(), { id, lifecycle }).catch((error) => error)
    expect(await failure('nobody')).toMatchObject({
      name: 'NotFound',
      obstacle: { reason: 'noDocument', id: 'nobody', lifecycles: ['thing'] },
    })
    expect(await failure('42')).toMatchObject({
      name: 'UsageError',
      obstacle: { reason: 'ambiguousId', meant: [42, '42'] },
    })
    expect(await failure('{')).toMatchObject({ name: 'UsageError', obstacle: { reason: 'invalidId', id: '{' } })
    expect(await failure('a', 'thng')).toMatchObject({
      obstacle: { reason: 'unknownLifecycle', lifecycle: 'thng', known: ['thing'] },
    })
  })

  test('wake of a document that never comes due: one after 9999 counts as parked, one of another type is woken', async () => {
    const late = { phase: 'Creating', lockedAt: new Date(8.64e15), progress: { attempts: 20 } }
    await things().insertMany([
      { _id: 'late', ...late },
      { _id: 'maxKey', phase: 'Creating', lockedAt: new MaxKey() },
    ] as never[])
    const error = await wakeDocument(system(), { id: 'late' }).catch((thrown) => thrown)
    expect(error).toBeInstanceOf(Refused)
    expect(error).toMatchObject({ obstacle: { reason: 'parked' } })
    expect(await thingNow('late')).toMatchObject(late)
    expect(await wakeDocument(system(), { id: 'maxKey' })).toMatchObject({ woken: true, was: 'broken' })
    expect(await thingNow('maxKey')).toMatchObject({ lockedAt: TASK_LOCK_INIT_TIME })
    expect(await unparkDocument(system(), { id: 'late' }, { by: 'me' })).toMatchObject({ _id: 'late' })
  })

  test('wake and unpark: what stands in the way is told with what to do', async () => {
    await things().insertMany([
      { _id: 'asleep', phase: 'Creating', ...ASLEEP },
      { _id: 'held', phase: 'Creating', lockedBy: HELD.lockedBy, lockedAt: new Date() },
      { _id: 'parked', phase: 'Creating', lockedAt: PARKED_AT, progress: { attempts: 20 } },
    ])
    expect(await wakeDocument(system(), { id: 'asleep' })).toEqual({
      lifecycle: 'thing',
      _id: 'asleep',
      woken: true,
      was: 'sleeping',
    })
    expect(await wakeDocument(system(), { id: 'asleep' })).toMatchObject({ woken: false, was: 'due' })
    const failures = [
      [wakeDocument(system(), { id: 'held' }), 'held', 'see: phaselock show held'],
      [wakeDocument(system(), { id: 'parked' }), 'parked', 'to give it another try, use: phaselock unpark'],
      [unparkDocument(system(), { id: 'asleep' }, { by: 'me' }), 'notParked', 'to end a sleep, use: phaselock wake'],
    ] as const
    for (const [failing, reason, advice] of failures) {
      const error = await failing.catch((thrown) => thrown)
      expect(error).toBeInstanceOf(Refused)
      expect(error).toMatchObject({ advice, obstacle: { reason, lifecycle: 'thing' } })
    }
    expect(await unparkDocument(system(), { id: 'parked' }, { by: 'me' })).toMatchObject({ _id: 'parked', by: 'me' })
    expect(await thingNow('parked')).toMatchObject({ lockedAt: TASK_LOCK_INIT_TIME, progress: { attempts: 0 } })
  })

  test('set-state: what comes of it; a state that no rule names only by force', async () => {
    await things().insertOne({ _id: 'a', phase: 'Created' })
    const wanted = { lifecycle: 'thing', _id: 'a', state: 'Deleted', phase: 'Created', goesTo: 'Deleting', held: false }
    expect(await setState(system(), { id: 'a' }, 'Deleted')).toEqual({ ...wanted, changed: true })
    expect(await setState(system(), { id: 'a' }, 'Deleted')).toEqual({ ...wanted, changed: false })
    await expect(setState(system(), { id: 'a' }, 'Odd')).rejects.toMatchObject({
      obstacle: { reason: 'unknownState', got: 'Odd', known: ['Deleted'] },
    })
    expect(await setState(system(), { id: 'a' }, 'Odd', { force: true })).toMatchObject({ goesTo: undefined })
  })

  test('add: as its owner; not what is there already, nor a field of ours', async () => {
    expect(await addDocument(system(), 'thing', { _id: 'a' })).toEqual({
      lifecycle: 'thing',
      _id: 'a',
      phase: 'Creating',
    })
    const failure = (fields: object) => addDocument(system(), 'thing', fields).catch((error) => error)
    expect(await failure({ _id: 'a' })).toMatchObject({ name: 'Refused', obstacle: { reason: 'exists', id: 'a' } })
    expect(await failure({ fence: 1 })).toMatchObject({ obstacle: { reason: 'invalidField', fields: ['fence'] } })
    expect(await failure({ lockedAt: 1 })).toMatchObject({ obstacle: { fields: ['lockedAt'] } })
    expect(await things().countDocuments()).toBe(1)
  })

  test('remove: not while it is held, by a writer of the old kind either', async () => {
    const now = new Date()
    const legacy = thingOf({ legacyWriters: true })
    const removing = (id: string, model = thing.model, force = false) =>
      removeDocument(system({ models: [model] }), { id }, { force }).catch((error) => error)
    await things().insertMany([
      { _id: 'held', phase: 'Creating', lockedBy: 'x~000000#1.1', lockedAt: now },
      { _id: 'leased', phase: 'Creating', lockedAt: now },
      { _id: 'asleep', phase: 'Creating', lockedAt: now, progress: { resumeAt: new Date(now.getTime() + 30_000) } },
    ])
    expect(await removing('held')).toMatchObject({ name: 'Refused', obstacle: { reason: 'held', id: 'held' } })
    expect(await removing('leased', legacy.model)).toMatchObject({ name: 'Refused', obstacle: { reason: 'held' } })
    const waking = wakeDocument(system({ models: [legacy.model] }), { id: 'leased' })
    await expect(waking).rejects.toMatchObject({
      obstacle: { reason: 'held' },
      problem: expect.stringMatching(/somebody holds it/),
    })
    expect(await removing('asleep', legacy.model)).toEqual({ lifecycle: 'thing', _id: 'asleep' })
    expect(await removing('leased')).toEqual({ lifecycle: 'thing', _id: 'leased' })
    expect(await removing('held', thing.model, true)).toEqual({ lifecycle: 'thing', _id: 'held' })
    expect(await removing('held')).toBeInstanceOf(NotFound)
  })
})
