import { describe, expect, jest, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { FLOWS_COLLECTION, flowId, REPLICAS_COLLECTION } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, thing, thingWith } from '../support/thing.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('phaselock flow', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })
  const flows = () => database.db.collection<Document & { _id: string }>(FLOWS_COLLECTION)
  const beats = () => database.db.collection<Document & { _id: string }>(REPLICAS_COLLECTION)

  async function registered() {
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await replica.prepare()
    await replica.stop()
  }

  test('shows rates, moves, times and causes, for people and as JSON', async () => {
    await registered()
    expect((await run('flow')).out).toBe('thing, last 60 minutes: 0/min recorded\nnothing was recorded\n')
    const at = new Date(Date.now() - 120_000)
    await flows().insertOne({
      _id: flowId('minute', at, 'thing'),
      ...{ lifecycle: 'thing', at, parts: ['a#1'] },
      moves: [
        { from: 'Creating', to: 'Created', outcome: 'moveTo', n: 90 },
        { from: 'Creating', to: 'Creating', outcome: 'error', n: 10 },
      ],
      causes: [{ cause: '0123456789ab', kind: 'error', text: 'no van for #', n: 10, versions: ['2.8.0'] }],
      times: [{ phase: 'Creating', low: 10, n: [90] }],
    })
    const { out, code } = await run('flow', 'thing', '--minutes', '10')
    expect(code).toBe(0)
    expect(out).toMatch(/^thing, last 10 minutes: 1[01]\/min recorded$/m)
    expect(out).toMatch(/^all +100 +█$/m)
    expect(out).toMatch(/^Creating +Created +moveTo +90$/m)
    expect(out).toMatch(/^Creating +error +10$/m)
    expect(out).toMatch(/^Creating +90 +[\d.]+\/min +~1\.5 s +~1\.5 s$/m)
    expect(out).toMatch(/^0123456789ab +error +10 +2\.8\.0 +█ +no van for #$/m)
    const json = (await run('flow', '--json', '--minutes', '10')).json() as Document[]
    expect(json).toMatchObject([
      { lifecycle: 'thing', unit: 'minute', phases: { Creating: { left: 90, p50Ms: 1_536 } } },
    ])
    expect(json[0]!['intervals']).toHaveLength(10)
  })

  test('refuses what it can not show', async () => {
    await registered()
    expect(await run('flow', 'thin')).toMatchObject({
      code: 2,
      err: expect.stringContaining('expected a lifecycle (thing)'),
    })
    for (const bad of ['0', '1441', 'x', '1.5'])
      expect(await run('flow', '--minutes', bad)).toMatchObject({
        code: 2,
        err: expect.stringContaining('from 1 to 1440'),
      })
    expect(await run('flow', '--minutes', '5', '--hours', '5')).toMatchObject({
      code: 2,
      err: expect.stringContaining('got both'),
    })
  })

  test('phaselock replicas shows the versions of apps, and how definitions differ', async () => {
    await registered()
    const own = { phases: ['Creating', 'Deleting'], places: 32, free: 32, held: 0, name: thing.name }
    const beat = { everyMs: 60_000, seenAt: new Date(), startedAt: new Date(), version: '1.2.0', host: 'h', pid: 1 }
    await beats().insertMany([
      { _id: 'api-1~aa', ...beat, appVersion: '2.7.0', lifecycles: [{ ...own, graph: 'aaaaaaaaaaaa' }] },
      { _id: 'api-2~bb', ...beat, appVersion: '2.8.0', lifecycles: [{ ...own, graph: 'bbbbbbbbbbbb' }] },
      { _id: 'old~cc', ...beat, lifecycles: [{ ...own, phases: ['Creating'] }] },
    ])
    const [older, newer] = [new Date(0), new Date(1)]
    const phase = { name: 'Creating', kind: 'working', next: ['Created'] }
    const graphs = [
      { graph: 'aaaaaaaaaaaa', at: older, of: { graph: [phase], maxAttempts: 20 } },
      {
        graph: 'bbbbbbbbbbbb',
        at: newer,
        of: { graph: [{ ...phase, next: ['Created', 'Deleting'] }], maxAttempts: 20 },
      },
    ]
    await database.db
      .collection<Document & { _id: string }>('phaselock.lifecycles')
      .updateOne({ _id: 'thing' }, { $set: { graphs } })
    const { out } = await run('replicas')
    expect(out).toMatch(/^REPLICA +APP +PHASELOCK +LIFECYCLES/m)
    expect(out).toMatch(/^api-1~aa +2\.7\.0 +1\.2\.0 +thing \(0, 32\)/m)
    expect(out).toMatch(/^old~cc +- +1\.2\.0 +thing/m)
    expect(out).toContain(
      [
        "!! thing: its replicas don't run the same",
        '   api-2~bb runs bbbbbbbbbbbb (app 2.8.0)',
        '   api-1~aa runs aaaaaaaaaaaa (app 2.7.0)',
        '     Creating: next is Created, was Created, Deleting',
        '   old~cc runs an unknown definition (app ?)',
        '   only these handle Deleting: api-1~aa, api-2~bb',
      ].join('\n'),
    )
    expect((await run('replicas', 'api-1~aa')).out).toMatch(/^2\.7\.0 +1\.2\.0 +h +1/m)
  })
})
