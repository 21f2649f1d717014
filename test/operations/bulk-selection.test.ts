import { describe, expect, test } from '@jest/globals'
import { PARKED_AT } from '../../src/lock/index.js'
import { listDocuments, previewOperation } from '../../src/operations/index.js'
import { Operations } from '../../src/operations/public.js'
import { useDatabase } from '../support/database.js'
import { thing } from '../support/thing.js'
import { BulkWorld } from './bulk-world.js'

const ASLEEP = new Date('2999-01-01T00:00:00Z')

describe('which documents an operation is about, as lists show them', () => {
  const database = useDatabase()

  async function world() {
    const world = await BulkWorld.of(database.db)
    const waits = (waitingOn: string) => ({ waitingFor: 'a thing', waitingOn })
    const parked = { lockedAt: PARKED_AT, progress: { history: [{ outcome: 'park', reason: 'no ink' }] } }
    await world.things.insertMany([
      { _id: 'old', phase: 'Labelling', ...parked },
      { _id: 'gone', phase: 'Deleted', ...parked },
      { _id: 'own', phase: 'Creating', ...parked },
      { _id: 'printer', phase: 'Creating', lockedAt: ASLEEP, progress: waits('printer') },
      { _id: 'old printer', phase: 'Labelling', lockedAt: ASLEEP, progress: waits('printer') },
      { _id: 'van', phase: 'Creating', lockedAt: ASLEEP, progress: waits('van') },
      { _id: 'parked van', phase: 'Creating', ...parked, progress: waits('van') },
      { _id: 'failing', phase: 'Labelling', lockedAt: ASLEEP, progress: { error: { message: 'no' } } },
      { _id: 'odd', phase: 'Creating', state: ['Deleted'] },
    ] as never[])
    return world
  }

  test.each([
    [{ parked: true }, ['gone', 'old', 'own', 'parked van']],
    [{ parked: true, phase: 'Labelling' }, ['old']],
    [{ on: 'printer' }, ['old printer', 'printer']],
    [{ on: 'van' }, ['van']],
    [{ on: 'van', phase: 'Creating', waiting: true }, ['van']],
    [{ on: 'lorry' }, []],
    [{ failing: true }, ['failing']],
    [{ waiting: true }, ['old printer', 'printer', 'van']],
    [{ state: 'Deleted' }, []],
  ])('%j', async (which, expected) => {
    const { system } = await world()
    const { documents } = await listDocuments(system, { lifecycle: 'thing', ...which })
    expect(documents.map(({ document }) => document['_id']).sort()).toEqual(expected)
    const selection = { lifecycle: 'thing', ...which }
    const { count, examples } = await previewOperation(system, { action: 'wake', selection, by: 'ana' })
    expect([count, examples.map(({ document }) => document['_id']).sort()]).toEqual([expected.length, expected])
  })

  test('what is parked in a phase that this version lacks is unparked; what waits for a name is woken', async () => {
    const things = await world()
    expect(await things.run('unpark', { parked: true })).toMatchObject({ phase: 'Done', counts: { done: 4 } })
    expect(await things.things.countDocuments({ lockedAt: PARKED_AT })).toBe(0)
    expect(await things.run('wake', { on: 'printer' })).toMatchObject({ phase: 'Done', counts: { done: 2 } })
    const asleep = await things.things.find({ lockedAt: ASLEEP }).toArray()
    expect(asleep.map(({ _id }) => _id).sort()).toEqual(['failing', 'van'])
  })

  test('a phase that no document has is still a mistake, and so is one without more', async () => {
    const { system } = await world()
    const preview = (selection: object) =>
      previewOperation(system, { action: 'wake', selection: { lifecycle: 'thing', ...selection }, by: 'ana' })
    await expect(preview({ phase: 'Labeling', parked: true })).rejects.toThrow("got 'Labeling'")
    await expect(preview({ phase: 'Labelling' })).rejects.toThrow("got 'Labelling'")
  })

  test('a program says so likewise', async () => {
    const { db } = await world()
    const operations = new Operations({ db, lifecycles: [thing] })
    const selection = { lifecycle: 'thing', on: 'printer' }
    expect(await operations.preview({ action: 'wake', selection, by: 'ana' })).toMatchObject({ count: 2 })
  })
})
