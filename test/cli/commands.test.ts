import { userInfo } from 'node:os'
import { describe, expect, jest, test } from '@jest/globals'
import { type Collection, type Document, ObjectId } from 'mongodb'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { THINGS, useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

const HELD = { lockedAt: new Date(Date.now() + 3_600_000), lockedBy: 'api~5f3a9c#7.2' }
const ASLEEP = {
  lockedAt: new Date(Date.now() + 3_600_000),
  progress: { waitingFor: 'rain', waitingSince: new Date() },
}

describe('the commands on documents', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (args: readonly string[], stdin?: string) =>
    folder().run(args, { MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS }, stdin)
  const things = () => database.db.collection('Thing') as unknown as Collection<{ _id: unknown } & Document>
  const thing = (_id: unknown) => things().findOne({ _id } as never)

  test('add: with and without fields, from standard input, as JSON', async () => {
    const plain = await run(['add', 'thing'])
    expect(plain).toMatchObject({ code: 0, err: '' })
    expect(plain.out).toMatch(/^thing [0-9a-f]{24} added in Creating; see: phaselock show [0-9a-f]{24}\n$/)
    const [, id] = /thing (\S+)/.exec(plain.out)!
    expect(await thing(new ObjectId(id))).toEqual({
      _id: new ObjectId(id),
      phase: 'Creating',
      createdAt: expect.any(Date),
    })

    const json = await run(['add', 'thing', '{"_id": "a", "at": {"$date": "2026-01-01T00:00:00Z"}}', '--json'])
    expect(json.json()).toEqual({ lifecycle: 'thing', _id: 'a', phase: 'Creating' })
    expect(await thing('a')).toMatchObject({ at: new Date('2026-01-01T00:00:00Z') })

    expect((await run(['add', 'thing', '-'], '{"_id": 7, "phase": "Created", "state": "Deleted"}')).code).toBe(0)
    expect(await thing(7)).toMatchObject({ phase: 'Created', state: 'Deleted' })

    const again = await run(['add', 'thing', '{"_id": "a"}'])
    expect(again.code).toBe(4)
    expect(again.err).toMatch(/^phaselock: thing a was not added: it already exists/)

    const met = (onDuplicate: string, ...more: string[]) =>
      run(['add', 'thing', '{"_id": "a", "n": 2}', '--on-duplicate', onDuplicate, ...more])
    expect((await met('ignore')).out).toBe('thing a exists, and nothing has changed; see: phaselock show a\n')
    expect((await met('replaceWaiting', '--json')).json()).toEqual({ lifecycle: 'thing', _id: 'a', kind: 'replaced' })
    expect(await thing('a')).toMatchObject({ n: 2 })
    await things().updateOne({ _id: 'a' } as never, { $set: { phase: 'Created' } })
    expect((await met('wake')).out).toMatch(/^thing a exists, and is at rest: nothing has changed;/)
    expect((await met('runAgain')).out).toMatch(/^thing a exists, and begins again in Creating with these fields;/)
    expect((await thing('a'))?.['progress'].history).toMatchObject([{ by: userInfo().username, to: 'Creating' }])
    expect((await met('replace')).err).toMatch(/--on-duplicate <what>.* Allowed choices are ignore, wake/)
    expect(await run(['add', 'thing', '{"_id": "later"}', '--due-in', '1h'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('expected --on-duplicate beside --due-in: ignore, wake, replaceWaiting, runAgain'),
    })
    const later = await run(['add', 'thing', '{"_id": "later"}', '--due-in', '1h', '--on-duplicate', 'runAgain'])
    expect(later).toMatchObject({ code: 0 })
    expect((await run(['show', 'later'])).out).toMatch(/due in (60|59) min|due in 1 h/)
    const unnamed = await run(['add', 'thing', '{}', '--on-duplicate', 'wake'])
    expect(unnamed.err).toMatch(/expected an _id by which a document may be there already/)
  })

  test('list: counts by phase, then documents with what they do, filtered and limited', async () => {
    expect((await run(['list'])).out).toBe('no documents of thing yet; add one: phaselock add thing\n')
    await things().createIndex({ phase: 1, lockedAt: 1, updatedAt: 1 }) // as a replica would
    await things().insertMany([
      { _id: 'a', phase: 'Creating' },
      { _id: 'b', phase: 'Creating', ...ASLEEP },
      { _id: 'c', phase: 'Creating', ...HELD },
      { _id: 'd', phase: 'Creating', lockedAt: PARKED_AT },
      { _id: 'e', phase: 'Created', state: 'Deleted' },
      { _id: 'f', phase: 'Creatng' },
    ])
    const counts = await run(['list'])
    expect(counts.out.split('\n')).toEqual([
      'LIFECYCLE  PHASE              DOCUMENTS  DUE  HELD  SLEEPING  FAILING  PARKED',
      'thing      Creating           4          1    1     1         -        1',
      'thing      Created            1               -                        -',
      'thing      Creatng (unknown)  1               -                        -',
      '',
    ])
    const all = await run(['list', 'thing'])
    expect(all.out).toMatch(/^ID {2}PHASE {5}STATE {4}CONDITION +WHY\n/)
    for (const line of [
      /^a {3}Creating {2}- {8}due$/m,
      /^b {3}Creating {2}- {8}sleeping, due in .* {2}waits for rain, since .*s$/m,
      /^c {3}Creating {2}- {8}held by api~5f3a9c#7\.2$/m,
      /^d {3}Creating {2}- {8}parked +somebody set its lockedAt to 9999-12-31$/m,
      /^e {3}Created {3}Deleted {2}resting$/m,
      /^f {3}Creatng {3}- {8}unknown phase: left alone$/m,
    ]) {
      expect(all.out).toMatch(line)
    }
    const parked = (await run(['list', 'thing', '--parked', '--json'])).json() as Document[]
    expect(parked).toMatchObject([{ lifecycle: 'thing', condition: { kind: 'parked' }, document: { _id: 'd' } }])
    expect((await run(['list', 'thing', '--state', 'Deleted'])).out).toMatch(/^e /m)
    expect((await run(['list', 'thing', '--phase', 'Creating', '--limit', '2'])).out).toMatch(
      /\(the first 2; more with: --after '?[\da-f]{8}\/thing\/\S+\)\n$/,
    )
    expect((await run(['list', 'thing', '--state', 'x'])).out).toBe('no such documents of thing\n')
  })

  test('show: one sentence, the fields, the history; ids as text, ObjectId, Extended JSON, number', async () => {
    const id = new ObjectId('66f0a1b2c3d4e5f60718293a')
    const at = new Date(Date.now() - 5_000)
    const entry = { at, from: 'Creating', to: 'Creating', step: 's1', outcome: 'wait', reason: 'rain', by: 't', ms: 12 }
    const error = { name: 'Error', message: 'kaput', stack: 'Error: kaput\n    at creating (my.js:3:4)' }
    const causes = [{ name: 'Error', message: 'connect', code: 'ECONNREFUSED' }]
    const progress = { ...ASLEEP.progress, history: [{ ...entry, count: 3 }] }
    await things().insertMany([
      { _id: id, phase: 'Creating', ...ASLEEP, progress, size: 3 },
      { _id: 42, phase: 'Creatng', progress: { error: { ...error, causes } } },
      { _id: '43', phase: 'Creating', progress: 'mine' },
    ])
    for (const text of [`${id}`, `ObjectId("${id}")`, `{"$oid": "${id}"}`]) {
      const shown = await run(['show', text])
      expect(shown).toMatchObject({ code: 0, err: '' })
      expect(shown.out).toMatch(
        /^thing 66f0a1b2c3d4e5f60718293a: Creating\nSleeps, due in .*, waiting for 'rain' since .*\.\n\n/,
      )
      expect(shown.out).toMatch(/^ {2}size +3$/m)
      expect(shown.out).toMatch(/^ {2}progress\.waitingFor +rain$/m)
      expect(shown.out).toMatch(/^\d+ s ago +s1 +wait x 3: rain +Creating +12 ms +t$/m)
    }
    const unknown = await run(['show', '42'])
    expect(unknown.out).toContain(
      "Its phase 'Creatng' is unknown to thing; did you mean 'Creating': it is never claimed",
    )
    expect(unknown.out).toMatch(
      /^ {2}progress\.error +Error: kaput\n {10,}at creating \(my\.js:3:4\)\n {10,}caused by Error ECONNREFUSED: connect$/m,
    )
    const broken = await run(['show', '43', '--lifecycle', 'thing'])
    expect(broken.out).toContain("Its shape is broken: 'progress' is a string")
    expect(broken.out).toMatch(/^ {2}progress {2}mine$/m)
    expect((await run(['show', '42', '--json'])).json()).toMatchObject({
      lifecycle: 'thing',
      condition: { kind: 'unknownPhase', phase: 'Creatng' },
      explanation: expect.stringMatching(/^Its phase/),
      document: { _id: 42 },
      also: [],
    })
    const none = await run(['show', 'nobody'])
    expect(none).toMatchObject({
      code: 3,
      out: '',
      err: 'phaselock: no document with the _id nobody in thing; see: phaselock list\n',
    })
  })

  test('an id that means two documents is refused with what to type', async () => {
    await things().insertMany([
      { _id: 42, phase: 'Creating' },
      { _id: '42', phase: 'Creating' },
    ])
    const both = await run(['wake', '42'])
    expect(both).toMatchObject({ code: 2, out: '' })
    expect(both.err).toContain('the _id 42 means 2 documents; give it as one of: ')
    expect((await run(['show', '"42"'])).code).toBe(0)
  })

  test('set-state: what follows, unchanged, while held; a state that no rule names', async () => {
    await things().insertMany([
      { _id: 'a', phase: 'Created' },
      { _id: 'held', phase: 'Creating', ...HELD },
    ])
    expect(await run(['set-state', 'a', 'Deleted'])).toMatchObject({
      code: 0,
      out: 'thing a: now wants Deleted; the next look moves it from Created to Deleting\n',
    })
    expect(await thing('a')).toEqual({ _id: 'a', phase: 'Created', state: 'Deleted' })
    expect((await run(['set-state', 'a', 'Deleted'])).out).toMatch(/: already wants Deleted; /)
    const held = await run(['set-state', 'held', 'Deleted', '--json'])
    expect(held.json()).toEqual({ lifecycle: 'thing', _id: 'held', state: 'Deleted', changed: true })
    const typo = await run(['set-state', 'a', 'Deletd'])
    expect(typo.code).toBe(2)
    expect(typo.err).toContain(`got "Deletd"; did you mean 'Deleted'? --force stores it anyway`)
    expect((await run(['set-state', 'a', 'Odd', '--force'])).code).toBe(0)
    expect((await run(['set-state', 'nobody', 'Deleted'])).code).toBe(3)
  })

  test('wake: ends a sleep; not of what is held or parked', async () => {
    await things().insertMany([
      { _id: 'asleep', phase: 'Creating', ...ASLEEP },
      { _id: 'held', phase: 'Creating', ...HELD },
      { _id: 'parked', phase: 'Creating', lockedAt: PARKED_AT, progress: {} },
    ])
    expect(await run(['wake', 'asleep'])).toMatchObject({ code: 0, out: 'thing asleep: woken: it is due now\n' })
    expect(await thing('asleep')).toMatchObject({ lockedAt: TASK_LOCK_INIT_TIME })
    const held = await run(['wake', 'held'])
    expect(held.code).toBe(4)
    expect(held.err).toContain("thing held can't be woken: api~5f3a9c#7.2 holds it")
    expect(await thing('held')).toMatchObject(HELD)
    const parked = await run(['wake', 'parked'])
    expect(parked.code).toBe(4)
    expect(parked.err).toContain('it is parked; to give it another try, use: phaselock unpark')
    expect((await run(['wake', 'nobody'])).code).toBe(3)
  })

  test('unpark: another go, with who asked in the history; not of what sleeps', async () => {
    await things().insertMany([
      { _id: 'parked', phase: 'Creating', lockedAt: PARKED_AT, progress: { attempts: 20, error: { message: 'x' } } },
      { _id: 'asleep', phase: 'Creating', ...ASLEEP },
    ])
    expect(await run(['unpark', 'parked', '--by', 'ticket-4711'])).toMatchObject({
      code: 0,
      out: 'thing parked: unparked by ticket-4711; it is due now\n',
    })
    expect(await thing('parked')).toMatchObject({
      lockedAt: TASK_LOCK_INIT_TIME,
      progress: { attempts: 0, history: [{ outcome: 'owner', by: 'ticket-4711' }] },
    })
    const asleep = await run(['unpark', 'asleep'])
    expect(asleep.code).toBe(4)
    expect(asleep.err).toContain("it isn't parked; to end a sleep, use: phaselock wake")
  })

  test('remove: with --yes only; while held with --force only', async () => {
    await things().insertMany([
      { _id: 'a', phase: 'Creating' },
      { _id: 'held', phase: 'Creating', ...HELD },
      { _id: 'expired', phase: 'Creating', lockedBy: 'x', lockedAt: new Date(0) },
    ])
    expect(await run(['remove', 'a'])).toMatchObject({
      code: 2,
      err: 'phaselock: expected --yes to delete a outright; nothing was deleted\n',
    })
    expect(await thing('a')).not.toBeNull()
    expect(await run(['remove', 'a', '--yes'])).toMatchObject({ code: 0, out: 'thing a: removed\n' })
    expect((await run(['remove', 'expired', '--yes', '--json'])).json()).toMatchObject({ removed: true })
    const held = await run(['remove', 'held', '--yes'])
    expect(held.code).toBe(4)
    expect(held.err).toContain("can't be removed without --force: api~5f3a9c#7.2 holds it")
    expect((await run(['remove', 'held', '--yes', '--force'])).code).toBe(0)
    expect(await things().countDocuments()).toBe(0)
    expect((await run(['remove', 'a', '--yes'])).code).toBe(3)
  })
})

describe('the commands that give replicas something to do', () => {
  const database = useDatabase()
  const folder = useCliFolder()

  test('ring before they end, unless they are told not to', async () => {
    const { db } = database
    const doorbell = await db.createCollection('phaselock.doorbell', { capped: true, size: 65_536 })
    await doorbell.insertOne({ lifecycles: [] })
    const run = (args: readonly string[]) =>
      folder().run(args, { MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS })
    for (const args of [
      ['add', 'thing', '{"_id": "a"}'],
      ['set-state', 'a', 'Deleted'],
      ['wake', 'a'],
      ['add', 'thing', '{"_id": "b"}', '--doorbell', 'off'],
    ]) {
      expect(await run(args)).toMatchObject({ code: 0 })
    }
    const rung = await doorbell.find({ by: { $exists: true } }, { projection: { _id: 0, by: 0, at: 0 } }).toArray()
    // The first one twice, where the insert took long.
    const named = { lifecycles: ['thing'], phases: ['Creating'], ids: ['a'] }
    expect(rung[0]).toEqual(named)
    expect(rung.slice(1).filter(({ ids }) => !ids)).toEqual([{ lifecycles: ['thing'] }, { lifecycles: ['thing'] }])
    expect(rung.filter(({ ids }) => ids && ids[0] !== 'a')).toEqual([])
  })
})
