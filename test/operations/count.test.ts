import { describe, expect, test } from '@jest/globals'
import { Binary, type Collection, type Document, MinKey, ObjectId } from 'mongodb'
import { CLAIM_INDEX, PARKED_AT, STAND_IN_INDEX } from '../../src/lock/index.js'
import { censusFor, countPhases, type System } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, thing, thingWith } from '../support/thing.js'

/** How long its oldest due document had been due, in seconds. */
const ageOf = ({ at, oldestDueAt }: { at: Date; oldestDueAt: Date | null }) =>
  (at.getTime() - oldestDueAt!.getTime()) / 1_000

describe('counts', () => {
  const database = useDatabase()
  const system = (): System => ({ db: database.db, models: [thing.model] })
  const things = () => database.db.collection('Thing') as unknown as Collection<{ _id: unknown } & Document>
  const registered = () =>
    replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    ).prepare()
  const counted = () => countPhases(system(), { fresh: true })
  const documentsBy = async () =>
    Object.fromEntries((await counted()).map(({ phase, kind, documents }) => [phase, `${kind} ${documents.n}`]))

  test('of phases: what their documents do', async () => {
    const inAnHour = new Date(Date.now() + 3_600_000)
    expect((await censusFor(system())).without.get('thing')).toMatch(/^no replica has taken one yet/)
    await registered()
    await things().insertMany([
      { _id: 'due', phase: 'Creating' },
      { _id: 'asleep', phase: 'Creating', lockedAt: inAnHour },
      { _id: 'held', phase: 'Creating', lockedAt: inAnHour, lockedBy: 'x' },
      { _id: 'parked', phase: 'Creating', lockedAt: PARKED_AT },
      { _id: 'odd', phase: 'Creatng' },
    ])
    const [creating, , , , ...others] = await counted()
    const n = (n: number) => ({ n })
    const each = { due: n(1), held: 1, sleeping: n(1), asking: n(0), parked: n(1), failing: n(0), waiting: n(0) }
    expect(creating).toEqual({
      at: expect.any(Date),
      oldestDueAt: null,
      undated: 1,
      lifecycle: 'thing',
      phase: 'Creating',
      kind: 'working',
      paused: false,
      documents: n(4),
      ...each,
    })
    expect(others).toMatchObject([{ phase: 'Creatng', kind: 'unknown', documents: n(1) }])
  })

  test('a document whose phase is an array is counted once, as unknown', async () => {
    await registered()
    await things().insertMany([
      { _id: 'due', phase: 'Creating' },
      { _id: 'array', phase: ['Creating', 'Created', 'Odd'] },
      { _id: 'parked', phase: ['Creating', 'Created'], lockedAt: PARKED_AT },
    ])
    const known = { Creating: 'working 1', Created: 'resting 0', Deleting: 'working 0', Deleted: 'final 0' }
    expect(await documentsBy()).toEqual({ ...known, '(an array)': 'unknown 2' })
    expect((await counted())[0]).toMatchObject({ phase: 'Creating', due: { n: 1 }, parked: { n: 0 } })
    await things().dropIndex('phase_1_lockedAt_1_updatedAt_1')
    const { census, without } = await censusFor(system(), { fresh: true })
    expect(census.size).toBe(0)
    expect(without.get('thing')).toMatch(/^it could not be taken: Thing has no index/)
  })

  test('a document without a phase, or with one that is no string, is counted once, as unknown', async () => {
    await registered()
    await things().insertMany([
      { _id: 'fine', phase: 'Creating' },
      { _id: 'missing' },
      { _id: 'null', phase: null },
      ...[5, 5.5, true, {}, new Date(), /x/, new MinKey(), new Binary(), new ObjectId()].map((phase, i) => ({
        _id: `odd${i}`,
        phase,
      })),
      { _id: 'array', phase: [null, 5] },
    ] as never[])
    const known = { Creating: 'working 1', Created: 'resting 0', Deleting: 'working 0', Deleted: 'final 0' }
    const others = { '(missing)': 'unknown 2', '(not a string)': 'unknown 9', '(an array)': 'unknown 1' }
    expect(await documentsBy()).toEqual({ ...known, ...others })
  })

  test('what waits: how long the oldest has, no array; also while the claim index is rebuilt', async () => {
    await registered()
    const ago = (s: number) => new Date(Date.now() - s * 1_000)
    await things().insertMany([
      { _id: 'fresh', phase: 'Creating', lockedAt: new Date(0), updatedAt: ago(100) },
      { _id: 'woken', phase: 'Creating', lockedAt: ago(230) },
      { _id: 'array', phase: ['Creating'], lockedAt: new Date(0), updatedAt: ago(9_000) },
    ])
    const expectCounts = async () => {
      const [creating] = await counted()
      expect(creating).toMatchObject({ phase: 'Creating', due: { n: 2 }, parked: { n: 0 } })
      expect(Math.abs(ageOf(creating!) - 200)).toBeLessThan(60)
    }
    await expectCounts()
    await things().createIndex(STAND_IN_INDEX)
    await things().dropIndex(Object.entries(CLAIM_INDEX).flat().join('_'))
    await expectCounts()
  })

  const ago = (s: number) => new Date(Date.now() - s * 1_000)
  const ahead = new Date(Date.now() + 3_600_000)
  test.each<[string, Document]>([
    ['an ObjectId', { _id: ObjectId.createFromTime(Math.floor(ago(80).getTime() / 1_000)) }],
    ['createdAt', { createdAt: ago(80) }],
    ['updatedAt', { updatedAt: ago(80) }],
    ['updatedAt and a lockedAt of 1970', { lockedAt: new Date(0), updatedAt: ago(80) }],
    ['createdAt and a lockedAt of 1970', { lockedAt: new Date(0), createdAt: ago(80) }],
    ['the last step, where updatedAt was unset', { progress: { at: ago(80), since: ago(900) } }],
    ['when it entered its phase', { progress: { since: ago(80) } }],
    ['the end of its sleep', { lockedAt: ago(110) }],
    ['the end of its lease', { lockedAt: ago(110), lockedBy: 'a~1#1.1' }],
    ['createdAt beside an updatedAt in the future', { updatedAt: ahead, createdAt: ago(80) }],
    ['createdAt beside an updatedAt that is no date', { updatedAt: 'yesterday', createdAt: ago(80) }],
  ])('a document says by %s since when it is due; undated ones hide it not', async (_by, fields) => {
    await registered()
    const undated = [
      {},
      { lockedAt: new Date(0) },
      { lockedAt: null },
      { createdAt: 'yesterday' },
      { createdAt: ahead },
    ]
    const first = undated.map((some, i) => ({ _id: `undated${i}`, phase: 'Creating', ...some }))
    await things().insertMany([...first, { _id: 'known', phase: 'Creating', ...fields }])
    const read = await censusFor(system(), { fresh: true })
    const { phases, overdue } = read.census.get('thing')!
    expect(phases[0]).toMatchObject({ due: { n: 6 }, undated: 5 })
    const age = ageOf({ at: read.now, ...phases[0]! })
    expect(age).toBeGreaterThan(79)
    expect(age).toBeLessThan(800) // none counts from 1970, or from when it began
    expect(overdue).toMatchObject([{ phase: 'Creating', documents: { n: 1 }, ids: [expect.anything()] }])
  })
})
