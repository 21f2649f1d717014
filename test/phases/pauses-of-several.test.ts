import { describe, expect, test } from '@jest/globals'
import { Audit, Limits, silentLogger } from '../../src/index.js'
import { MOST_PAUSES } from '../../src/lock/index.js'
import {
  findDocument,
  type ListedPause,
  listPauses,
  type PauseRequest,
  pausedText,
  pauseWork,
  type ResumeRequest,
  resumeWork,
} from '../../src/operations/index.js'
import { BulkWorld, many } from '../operations/bulk-world.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, thing, things } from '../support/thing.js'

describe('pauses of the same by several people', () => {
  const database = useDatabase()
  const lifecycle = () =>
    thing.handle({
      Creating: async (_doc, step) => step.moveTo('Created'),
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })
  const system = (by = 'carl') => ({ db: database.db, models: [thing.model], audit: { by } })
  const pause = (by: string, more: Partial<PauseRequest> = {}) =>
    pauseWork(system(by), { lifecycle: 'thing', by, ...more })
  const resume = (by: string, more: Partial<ResumeRequest> = {}) =>
    resumeWork(system(by), { lifecycle: 'thing', by, ...more })
  const inForce = async () =>
    (await listPauses(system())).pauses.map((one) => `${pausedText(one)} ${one.by} ${one.reason} ${one.until !== null}`)
  const whose = (pauses: readonly ListedPause[]) => pauses.map(({ by }) => by)
  const audited = (was: unknown) => whose((was as { pauses: readonly ListedPause[] }).pauses)
  const limits = () => new Limits(database.db)

  async function prepared() {
    const replica = replicaOf(database.db, lifecycle(), { logger: silentLogger })
    await replica.prepare()
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    return replica
  }

  test.each([
    ['lifecycle', {}, 'thing'],
    ['phase', { phase: 'Creating' }, 'thing, phase Creating'],
    ['document', { id: 'a' }, 'thing a'],
    ['everything', { lifecycle: undefined }, 'thing'],
  ])('%s: each has an owner, a reason and an end; work goes on when the last has ended', async (_what, scope, text) => {
    const replica = await prepared()
    await pause('ana', { ...scope, reason: 'the printer is broken' })
    await pause('ben', { ...scope, reason: 'a test', for: '1h' })
    const ana = `${text} ana the printer is broken false`
    expect(await inForce()).toEqual([ana, `${text} ben a test true`])
    await pause('ben', { ...scope, reason: 'a longer test', for: '2h' })
    expect(await inForce()).toEqual([ana, `${text} ben a longer test true`])
    const said = (await findDocument(system(), { id: 'a' })).explanation
    expect(said).toMatch(/Paused.* by ana .*--of ana.*\. Paused.* by ben .*--of ben/)
    expect(whose(await resume('ben', scope))).toEqual(['ben'])
    expect(await inForce()).toEqual([ana])
    await replica.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Creating' })).toBe(1)
    // The only one that is left may be ended by anybody.
    expect(whose(await resume('ben', scope))).toEqual(['ana'])
    await replica.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(1)
    await replica.stop()
  })

  test('a pause that is over by itself ends no other', async () => {
    const replica = await prepared()
    await pause('ana')
    await pause('ben', { for: '1h' })
    const entries = database.db.collection('phaselock.lifecycles')
    await entries.updateOne({ _id: 'thing' as never }, { $set: { 'pauses.1.until': new Date(5) } })
    expect(await inForce()).toEqual(['thing ana null false'])
    await replica.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Creating' })).toBe(1)
    await replica.stop()
  })

  test('who has none of several is refused, with their names; one that is named ends', async () => {
    const replica = await prepared()
    await pause('ana')
    await pause('ben')
    await expect(resume('carl')).rejects.toThrow(
      "thing is paused by ana, ben: none of these pauses is yours; to end another's: phaselock resume ... --of ana",
    )
    await expect(resume('carl', { of: 'dora' })).rejects.toMatchObject({
      ...{ name: 'Refused', obstacle: { reason: 'pausedByOthers', by: ['ana', 'ben'] } },
    })
    expect(await inForce()).toHaveLength(2)
    expect(whose(await resume('carl', { of: 'ana' }))).toEqual(['ana'])
    await expect(resume('ben', { of: 'ana' })).rejects.toThrow("none is ana's")
    expect(await inForce()).toEqual(['thing ben null false'])
    await replica.stop()
  })

  test('the audit has the pauses before and after', async () => {
    const replica = await prepared()
    await pause('ana', { reason: 'ink' })
    await pause('ben', { for: '1h' })
    await resume('carl', { of: 'ana' })
    const entries = await new Audit(database.db).list({})
    const seen = [...entries].reverse().map(({ action, by, before, after }) => ({
      ...{ action, by, before: audited(before), after: audited(after) },
    }))
    expect(seen).toEqual([
      { action: 'pause', by: 'ana', before: [], after: ['ana'] },
      { action: 'pause', by: 'ben', before: ['ana'], after: ['ana', 'ben'] },
      { action: 'resume', by: 'carl', before: ['ana', 'ben'], after: ['ben'] },
    ])
    expect(entries[1]).toMatchObject({
      before: { pauses: [{ by: 'ana', reason: 'ink', until: null, lifecycle: 'thing' }] },
    })
    await replica.stop()
  })

  test('by owners: those of others stay, and with several of them one has to be named', async () => {
    const orders = lifecycle()
    const replica = replicaOf(database.db, orders, { logger: silentLogger })
    await replica.prepare()
    await orders.pause({ by: 'ana', audit: true })
    await orders.pause({ by: 'ben', for: '1h', audit: true })
    await expect(orders.resume()).rejects.toThrow(
      'resume: of: expected whose pause ends (ana, ben), because there are several, got none',
    )
    expect(await orders.resume({ of: 'carl' })).toBe(false)
    expect(await orders.resume({ audit: { by: 'ben' } })).toBe(true)
    expect(await inForce()).toEqual(['thing ana null false'])
    expect(await orders.resume()).toBe(true)
    expect(await orders.resume()).toBe(false)
    const [resumed, paused] = await new Audit(database.db).list({})
    expect([paused, resumed]).toMatchObject([
      {
        action: 'pause',
        by: 'ben',
        before: { pauses: [{ by: 'ana' }] },
        after: { pauses: [{ by: 'ana' }, { by: 'ben' }] },
      },
      {
        action: 'resume',
        by: 'ben',
        before: { pauses: [{ by: 'ana' }, { by: 'ben' }] },
        after: { pauses: [{ by: 'ana' }] },
      },
    ])
    await replica.stop()
  })

  test('of a limit: the longest is what is asked for slots, each ends by itself', async () => {
    await limits().set('ink', { slots: 1 })
    const ofLimit = { lifecycle: undefined, limit: 'ink' }
    await pause('ana', { ...ofLimit, reason: 'none left' })
    await pause('ben', { ...ofLimit, for: '1h' })
    const stored = () => database.db.collection('phaselock.limits').findOne({})
    expect(await stored()).toMatchObject({ paused: { by: 'ana' }, pauses: [{ by: 'ana' }, { by: 'ben' }] })
    expect(await inForce()).toEqual(['limit ink ana none left false', 'limit ink ben null true'])
    expect((await limits().list())[0]).toMatchObject({ paused: { by: 'ana', others: [{ by: 'ben' }] } })
    await expect(resume('carl', ofLimit)).rejects.toMatchObject({ obstacle: { reason: 'pausedByOthers' } })
    await expect(limits().resume('ink')).rejects.toThrow('expected whose pause ends (ana, ben)')
    expect(whose(await resume('carl', { ...ofLimit, of: 'ana' }))).toEqual(['ana'])
    expect(await stored()).toMatchObject({ paused: { by: 'ben' }, pauses: [{ by: 'ben' }] })
    expect(await limits().resume('ink')).toBe(true)
    expect(await stored()).not.toHaveProperty('paused')
    expect(await inForce()).toEqual([])
    // One that an earlier version has stored.
    const paused = { by: 'old', reason: null, since: new Date(), until: null }
    await database.db.collection('phaselock.limits').updateOne({}, { $set: { paused } })
    await limits().pause('ink', { by: 'ana', for: '1h' })
    expect(await inForce()).toEqual(['limit ink old null false', 'limit ink ana null true'])
    expect((await new Audit(database.db).list({ action: 'resume' }))[0]).toMatchObject({
      ...{ before: { pauses: [{ by: 'ana' }, { by: 'ben' }] }, after: { pauses: [{ by: 'ben' }] } },
    })
  })

  test('of a limit are no more than 200', async () => {
    await limits().set('ink', { slots: 1 })
    const pauses = Array.from({ length: MOST_PAUSES }, (_, i) => ({ by: `p${i}`, since: new Date(), until: null }))
    await database.db.collection('phaselock.limits').updateOne({}, { $set: { paused: pauses[0], pauses } })
    await expect(limits().pause('ink', { by: 'ana' })).rejects.toThrow('expected one of the 200 people')
    await expect(pause('ana', { lifecycle: undefined, limit: 'ink' })).rejects.toMatchObject({
      obstacle: { reason: 'tooManyPauses' },
    })
    expect(await limits().pause('ink', { by: 'p7', reason: 'again' })).toBe(true)
  })

  test('an operation ends none of others where there are several', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(2, {}))
    await pause('ben', { id: 'd00000' })
    await pause('carl', { id: 'd00000' })
    await w.run('pause', { filter: { _id: 'd00001' } })
    await pause('ben', { id: 'd00001' })
    expect(await w.run('resume', { all: true })).toMatchObject({
      ...{ counts: { done: 1, skipped: 1 } },
      troubles: [{ reason: 'others have paused it (ben, carl): resume --of says whose ends' }],
    })
    expect(await inForce()).toEqual([
      ...['thing d00000 ben null false', 'thing d00000 carl null false', 'thing d00001 ben null false'],
    ])
  })
})
