import { afterEach, beforeEach, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { Cluster, fenceOf, type KubernetesObject } from '../../../src/kubernetes/index.js'
import { THINGS, useCliFolder } from '../../cli/cli-process.js'
import { eventually, useDatabase } from '../../support/database.js'
import { HoldingProxy } from '../support/holding-proxy.js'
import { describeWithCluster } from '../support/index.js'
import { untilMayGet } from '../support/rights.js'
import type { TestAccount } from '../support/test-cluster.js'
import { OrphansWorld } from './world.js'

/** A maker's; it may remove nothing. */
const RIGHTS = [{ apiGroups: [''], resources: ['configmaps'], verbs: ['get', 'list', 'create', 'patch'] }]

describeWithCluster('objects whose documents are gone', (kubernetes) => {
  const database = useDatabase()
  const folder = useCliFolder()
  const closing: (() => unknown)[] = []
  let makers: TestAccount
  let admin: Cluster
  let maker: Cluster
  let world: OrphansWorld

  beforeEach(async () => {
    world = new OrphansWorld(database, await kubernetes().namespace('orphans'))
    makers = await kubernetes().serviceAccount(RIGHTS, { namespaces: [world.namespace] })
    await untilMayGet(makers, world.map('any'))
    admin = clusterOf(kubernetes().kubeconfigText)
    maker = clusterOf(makers.kubeconfigText)
  })
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close()
  })

  function clusterOf(kubeconfig: string): Cluster {
    const cluster = Cluster.of({ name: 'test', kubeconfig, requestTimeout: '5m' })
    closing.push(() => cluster.close())
    return cluster
  }
  const sweepers = async (): Promise<TestAccount> => {
    const rights = [{ apiGroups: [''], resources: ['configmaps'], verbs: ['get', 'delete'] }]
    const sweeper = await kubernetes().serviceAccount(rights, { namespaces: [world.namespace] })
    await untilMayGet(sweeper, world.map('late'))
    return sweeper
  }
  /** What this account sends can be held on its way. */
  const behindProxy = async (from: TestAccount): Promise<{ proxy: HoldingProxy; cluster: Cluster }> => {
    const proxy = await HoldingProxy.before(from)
    closing.push(() => proxy.stop())
    return { proxy, cluster: clusterOf(proxy.kubeconfigText) }
  }
  const find = (options: Parameters<OrphansWorld['sweep']>[0] = {}, cluster = admin) =>
    world.sweep(options).find(cluster, [world.namespace])
  /** Waits until the one orphan is old enough to be removed. */
  const oldEnough = (options: Parameters<OrphansWorld['sweep']>[0] = {}) =>
    eventually(async () => {
      const { orphans } = await find(options)
      expect(orphans.map(({ kept }) => kept)).toEqual([undefined])
      return orphans[0]!
    })
  const isThere = async (name: string) => (await admin.get(world.map(name))) !== undefined
  const cli = (...args: string[]) =>
    folder().run(['orphans', '--namespace', world.namespace, '--kubeconfig', kubernetes().kubeconfig, ...args], {
      MONGODB_URI: database.uri,
      PHASELOCK_LIFECYCLES: THINGS,
      THING_LOCK_TIMEOUT: '1s',
    })

  test('are found by what is written on them, and nothing else is', async () => {
    await world.leave(maker, 'late')
    await world.make(maker, 'ended', 'Deleted')
    const alive = await world.make(maker, 'alive', 'Created')
    await world.make(maker, 'held', 'Creating')
    const { labels, annotations, uid } = alive.metadata
    const marks = { labels, annotations: { ...annotations, 'phaselock.dev/id': '{"_id":"late"}' } }
    const others: KubernetesObject[] = [
      world.map('theirs'),
      world.map('elsewhere', { ...marks, annotations: { ...marks.annotations, 'phaselock.dev/database': 'staging' } }),
      world.map('unknown', { ...marks, labels: { ...labels, 'phaselock.dev/lifecycle': 'other' } }),
      world.map('controlled', {
        ...marks,
        ownerReferences: [{ apiVersion: 'v1', kind: 'ConfigMap', name: 'alive', uid, controller: true }],
      }),
      { apiVersion: 'v1', kind: 'Secret', metadata: { ...marks, name: 'late-tls', namespace: world.namespace } },
    ]
    for (const object of others) await kubernetes().make(object)

    const { orphans, lifecycles, databases, notLookedAt } = await find({ olderThanMs: 3_600_000 })
    const young = 'younger than 1 h: who made it may still be there'
    expect(orphans.map(({ ref, why, kept }) => [ref.kind, ref.metadata.name, why, kept])).toEqual([
      ['ConfigMap', 'ended', 'ended', young],
      ['ConfigMap', 'late', 'gone', young],
      // Secrets go after what they are made for.
      ['Secret', 'late-tls', 'gone', young],
    ])
    expect([...lifecycles]).toEqual([['other', 1]])
    expect([...databases]).toEqual([['staging', 1]])
    // Others' kinds come and go meanwhile.
    expect(notLookedAt.filter(({ what }) => what === 'configmaps' || what === 'secrets')).toEqual([])
    // Just made: nothing of it is removed.
    const [late] = orphans.filter(({ ref }) => ref.metadata.name === 'late')
    expect(await world.sweep().remove(admin, late!)).toEqual({ left: young, failed: false })
    expect(await isThere('late')).toBe(true)

    // An account that may not list them all is told what was not looked at, by name.
    const narrow = await find({}, maker)
    expect(narrow.orphans.map(({ ref }) => ref.metadata.name)).toEqual(['ended', 'late'])
    const secrets = narrow.notLookedAt.find(({ what }) => what === 'secrets')
    expect(secrets!.why).toMatch(/expected the account to have the right to list secrets in namespace/)
  })

  test('are removed by the command, which says what it did and leaves the others', async () => {
    const nothing = await cli()
    expect(nothing).toMatchObject({ code: 0, out: 'no orphans of thing\n' })

    await world.leave(maker, 'late')
    await world.make(maker, 'alive', 'Created')
    await world.make(maker, 'ended', 'Deleted')
    const listed = await cli()
    expect(listed.out).toMatch(/^REGION +KIND +NAMESPACE +NAME +DOCUMENT +WHY +AGE +MAY BE REMOVED$/m)
    expect(listed.out).toMatch(/late +thing late +its document is gone .* younger than 10 min/)

    await eventually(async () =>
      expect((await find({ ended: true })).orphans.map(({ kept }) => kept)).toEqual([undefined, undefined]),
    )
    const swept = await cli('--remove', '--older-than', '0s')
    expect(swept.code).toBe(0)
    expect(swept.out).toMatch(/late .* removed$/m)
    expect(swept.out).toMatch(/ended .* left: a lifecycle may end and leave it on purpose: --ended$/m)
    expect([await isThere('late'), await isThere('alive'), await isThere('ended')]).toEqual([false, true, true])
    const ended = await cli('--remove', '--older-than', '0s', '--ended', '--json')
    expect(ended.json()).toMatchObject({
      orphans: [{ region: null, kind: 'ConfigMap', name: 'ended', lifecycle: 'thing', _id: 'ended', removed: true }],
    })
    expect([await isThere('alive'), await isThere('ended')]).toEqual([true, false])
  })

  test('are looked for in each region; one that can not be asked is named, and the exit code says so', async () => {
    await world.insertAnother()
    await world.leave(maker, 'late')
    const gateway = { domain: 'eu.example' }
    const regions = database.db.collection<{ _id: string } & Document>('Region')
    const cluster = { kubeconfigFile: kubernetes().kubeconfig }
    await regions.insertMany([
      { _id: 'eu-1', cluster, namespace: world.namespace, gateway },
      { _id: 'eu-2', cluster, namespace: world.namespace, gateway },
      { _id: 'us-1', cluster: { kubeconfigFile: '/nowhere/kubeconfig' }, namespace: 'gw', gateway },
    ])
    const found = await cli()
    expect(found.code).toBe(1)
    // Both are the same cluster.
    expect(found.out.match(/late/g)).toHaveLength(2)
    expect(found.out).toMatch(/^eu-1 +ConfigMap/m)
    expect(found.err).toMatch(/not looked at: us-1: region us-1 can't be used: expected a kubeconfig/)
    expect(found.err).toMatch(/1 cluster could not be asked/)
    expect((await cli('--region', 'eu-2')).out).toMatch(/^eu-2 +ConfigMap/m)
  })

  test('stay where the collection is empty, as it is in a wrong database', async () => {
    await world.leave(maker, 'late')
    const orphan = await eventually(async () => {
      const [one] = (await find()).orphans
      expect(one!.kept).toMatch(/the collection Thing is empty, so this may be the wrong database/)
      return one!
    })
    expect(await world.sweep().remove(admin, orphan)).toMatchObject({ failed: false })
    // Replicas work on another collection: these lifecycles aren't those of this database.
    const lifecycles = database.db.collection<{ _id: string } & Document>('phaselock.lifecycles')
    await lifecycles.insertOne({ _id: 'thing', collection: 'Things', lockTimeout: 1_000 })
    const [other] = (await find({ emptyCollections: true })).orphans
    expect(other!.kept).toBe('replicas have the documents of thing in Things, these lifecycles in Thing')
    await lifecycles.updateOne({ _id: 'thing' }, { $set: { collection: 'Thing' } })
    const sure = await oldEnough({ emptyCollections: true })
    // Without the right to: it says which one is missing.
    expect(await world.sweep({ emptyCollections: true }).remove(maker, sure)).toEqual({
      left: expect.stringMatching(/the right to delete configmaps in namespace/),
      failed: true,
    })
    expect(await world.sweep({ emptyCollections: true }).remove(admin, sure)).toBe('removed')
    expect(await isThere('late')).toBe(false)
  })

  test('are not taken from a document that is made anew while they are swept', async () => {
    await world.insertAnother()
    for (const name of ['adopted', 'remade']) await world.leave(maker, name)
    const [adopted, remade] = await eventually(async () => {
      const { orphans } = await find()
      expect(orphans.map(({ kept }) => kept)).toEqual([undefined, undefined])
      return orphans
    })

    // It is there before the sweep looks again.
    await world.things.insertOne({ _id: 'adopted', phase: 'Creating' })
    expect(await world.sweep().remove(admin, adopted!)).toEqual({ left: 'its document is there now', failed: false })

    // It is made after that look, and adopts the object while the deletion is on its way.
    await world.things.deleteOne({ _id: 'adopted' })
    const account = await sweepers()
    const sweeper = await behindProxy(account)
    const first = sweeper.proxy.hold('DELETE')
    const left = world.sweep().remove(sweeper.cluster, adopted!)
    await first.arrived
    await world.make(maker, 'adopted', 'Created', 7)
    first.release()
    expect(await left).toEqual({ left: 'it was changed meanwhile', failed: false })
    expect(fenceOf((await admin.get(world.map('adopted')))!)).toBe(7)

    // The other way about: the new life has found the object, and is about to change it, when it goes.
    const second = sweeper.proxy.hold('DELETE')
    const removed = world.sweep().remove(sweeper.cluster, remade!)
    await second.arrived
    const other = await behindProxy(makers)
    const change = other.proxy.hold('PATCH')
    const made = world.make(other.cluster, 'remade', 'Created', 9)
    await change.arrived
    second.release()
    expect(await removed).toBe('removed')
    change.release()
    expect((await made).metadata.uid).not.toBe(remade!.uid)
    expect(fenceOf((await admin.get(world.map('remade')))!)).toBe(9)
    expect((await find()).orphans).toEqual([])
  })
})
