import { describe, expect, test } from '@jest/globals'
import { silentLogger } from '../../src/index.js'
import { PARKED_AT } from '../../src/lock/index.js'
import { countPhases, listDocuments, showDocument, systemStatus, unparkDocument } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, thing, thingOf, things, thingWith } from '../support/thing.js'

describe('a parked document in a phase that this version lacks', () => {
  const database = useDatabase()

  async function world() {
    const lifecycle = thingWith(async (_doc, step) => step.wait('a printer', { on: 'printer', for: '1h' }))
    const one = replicaOf(database.db, lifecycle, { logger: silentLogger })
    await one.prepare()
    const parked = { lockedAt: PARKED_AT, progress: { history: [{ outcome: 'park', reason: 'no ink' }] } }
    await things(database.db).insertMany([
      { _id: 'old', phase: 'Labelling', ...parked },
      { _id: 'gone', phase: 'Deleted', ...parked },
      { _id: 'new', phase: 'Creating' },
    ] as never[])
    await one.runOnce()
    await one.stop()
    return { db: database.db, models: [thing.model] }
  }
  const idsOf = (documents: readonly { readonly document: { _id?: unknown } }[]) =>
    documents.map(({ document }) => document._id).sort()

  test('is parked for status, count, list, show, the metrics and unpark alike', async () => {
    const system = await world()
    const { documents } = await listDocuments(system, { parked: true })
    expect(idsOf(documents)).toEqual(['gone', 'old'])
    const status = await systemStatus(system, { fresh: true })
    expect(status.lifecycles).toMatchObject([{ lifecycle: 'thing', parked: { n: 2 } }])
    const counts = await countPhases(system, { fresh: true })
    expect(counts.reduce((n, { parked }) => n + parked.n, 0)).toBe(2)
    expect(counts).toContainEqual(expect.objectContaining({ phase: 'Labelling', parked: { n: 1 }, due: { n: 0 } }))
    const shown = await showDocument(system, { id: 'old' })
    expect(shown.condition.kind).toBe('parked')
    expect(shown.explanation).toMatch(/^Parked because 'no ink': .*; its phase 'Labelling' is unknown to thing in this/)
    const done = await unparkDocument(system, { id: 'old' }, { by: 'ana' })
    expect(done.unclaimed).toMatch(
      /^its phase 'Labelling' is unknown to thing in this version, so no replica of it claims/,
    )
    expect((await showDocument(system, { id: 'old' })).condition.kind).toBe('unknownPhase')
    expect(idsOf((await listDocuments(system, { parked: true })).documents)).toEqual(['gone'])
  })

  test('that is one of another lifecycle in the same collection is not its own', async () => {
    const system = await world()
    const phases = { Labelling: { next: ['Done'] }, Done: { rest: true } }
    const other = { ...thingOf({ name: 'label', phases, rules: [] }) }
    const replica = replicaOf(database.db, (other as any).handle({ Labelling: async () => undefined }), {
      logger: silentLogger,
    })
    await replica.prepare()
    await replica.stop()
    expect(idsOf((await listDocuments(system, { parked: true })).documents)).toEqual(['gone'])
    expect((await systemStatus(system, { fresh: true })).lifecycles).toMatchObject([
      { lifecycle: 'thing', parked: { n: 1 } },
    ])
    expect((await countPhases(system, { fresh: true })).map(({ phase }) => phase)).not.toContain('Labelling')
  })

  test('a list goes by what documents wait for', async () => {
    const system = await world()
    expect(idsOf((await listDocuments(system, { on: 'printer' })).documents)).toEqual(['new'])
    expect((await listDocuments(system, { on: 'other' })).documents).toEqual([])
    expect(
      idsOf((await listDocuments(system, { lifecycle: 'thing', on: 'printer', waiting: true })).documents),
    ).toEqual(['new'])
  })
})
