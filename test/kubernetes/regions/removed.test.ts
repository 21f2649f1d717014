import { afterEach, beforeEach, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { lifecycleOf, Replica } from '../../../src/index.js'
import { type HeldCluster, onCluster, Regions } from '../../../src/kubernetes/index.js'
import { explain } from '../../../src/operations/index.js'
import type { RunningStep } from '../../../src/phases/index.js'
import { THINGS, useCliFolder } from '../../cli/cli-process.js'
import { eventually, useDatabase } from '../../support/database.js'
import { describeWithCluster } from '../support/index.js'

interface Thing {
  _id: string
  region: string
  placed?: { region: string }
  state?: 'Deleted'
}

const thing = lifecycleOf<Thing>().define({
  name: 'thing',
  collection: 'Thing',
  phases: {
    Creating: { next: ['Created'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
})

describeWithCluster('a Region that is removed', (kubernetes) => {
  const database = useDatabase()
  const folder = useCliFolder()
  let namespace: string
  let regions: Regions
  let replica: Replica

  beforeEach(async () => {
    namespace = await kubernetes().namespace('removed')
    const { db } = database
    regions = new Regions({ db, refresh: '10ms' })
    const where = async (doc: Readonly<Thing>, step: RunningStep): Promise<HeldCluster> => {
      const { cluster } = await regions.of(doc.placed?.region ?? doc.region)
      return cluster.hold(doc, step, { name: 'thing', collection: 'Thing', db })
    }
    const map = ({ _id }: Thing) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: _id, namespace } })
    const handled = thing.handle({
      Creating: onCluster(where, async (doc, step, held) => {
        if (!doc.placed) return step.again({ set: { placed: { region: doc.region } } })
        await held.ensure(map(doc))
        return step.moveTo('Created')
      }),
      Deleting: onCluster(where, async (doc, step, held) => {
        const removal = await held.remove(map(doc))
        return removal.done ? step.moveTo('Deleted') : step.wait(removal.text)
      }),
    })
    replica = new Replica({ db, lifecycles: [handled] })
  })
  afterEach(async () => {
    await replica.stop()
    regions.close()
  })

  const cli = (...args: string[]) =>
    folder().run(['regions', 'remove', ...args], { MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS })
  const things = () => database.db.collection<Thing & Document>('Thing')
  /** Turns of the replica, without waiting for anybody's pause. */
  const until = (check: (doc: (Thing & Document) | null) => unknown) =>
    eventually(async () => {
      await things().updateMany({ lockedBy: null }, { $set: { lockedAt: new Date(0) } })
      await replica.runOnce()
      await check(await things().findOne({ _id: 'a' }))
    })

  test('is refused while documents need it; removed all the same they wait with its name, and go on when it is back', async () => {
    const all = database.db.collection<{ _id: string } & Document>('Region')
    const region = {
      cluster: { kubeconfigFile: kubernetes().kubeconfig },
      namespace,
      gateway: { domain: 'eu.example' },
    }
    await all.insertOne({ _id: 'eu-1', ...region })
    await things().insertOne({ _id: 'a', phase: 'Creating', region: 'eu-1' })
    await until((doc) => expect(doc).toMatchObject({ phase: 'Created', placed: { region: 'eu-1' } }))
    await things().insertMany([
      { _id: 'b', phase: 'Creating', region: 'eu-1', lockedAt: new Date('9999-12-31') },
      { _id: 'c', phase: 'Deleted', region: 'eu-1', lockedAt: new Date('9999-01-01') },
    ])

    const refused = await cli('eu-1')
    expect(refused.code).toBe(4)
    expect(refused.err).toMatch(
      /^phaselock: Region eu-1 was not removed: Thing: 1 placed in it, 1 that name it\. .*--force/,
    )
    expect(await all.countDocuments()).toBe(1)
    expect((await cli('eu-2')).code).toBe(3)

    const forced = await cli('eu-1', '--force', '--json')
    expect(forced.json()).toEqual({
      removed: { _id: 'eu-1', ...region },
      inUse: [{ collection: 'Thing', placed: 1, named: 1 }],
    })
    await things().updateOne({ _id: 'a' }, { $set: { state: 'Deleted' } })
    const reason = /region eu-1 can't be used: expected a document eu-1 in the collection Region, there is none/
    await until((doc) => expect(doc!['progress']).toMatchObject({ waitingFor: expect.stringMatching(reason) }))
    // Asleep for longer than it takes to be asked about.
    const later = new Date(Date.now() + 600_000)
    await things().updateOne({ _id: 'a' }, { $set: { lockedAt: later, 'progress.resumeAt': later } })
    const waits = await things().findOne({ _id: 'a' })
    expect(waits!['progress'].attempts ?? 0).toBe(0)
    expect(explain(waits!, thing.model, new Date(), 30_000)).toMatch(reason)
    expect(
      (await folder().run(['show', 'a'], { MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS })).out,
    ).toMatch(reason)

    await all.insertOne({ _id: 'eu-1', ...region })
    await until((doc) => expect(doc).toBeNull())
    await things().deleteOne({ _id: 'b' })
    const unused = await cli('eu-1')
    expect(unused).toMatchObject({ code: 0, err: '' })
    expect(unused.out).toMatch(/^Region eu-1: removed\nto restore it, insert this into Region:\n\{"_id":"eu-1"/)
  })
})
