import { afterEach, beforeEach, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { lifecycleOf, Replica } from '../../src/index.js'
import { Cluster, type HeldCluster, type KubernetesObject, onCluster } from '../../src/kubernetes/index.js'
import type { RunningStep } from '../../src/phases/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { HoldingProxy } from './support/holding-proxy.js'
import { describeWithCluster } from './support/index.js'
import { untilMayGet } from './support/rights.js'
import type { TestAccount } from './support/test-cluster.js'

interface Site {
  _id: string
  state: 'Running' | 'Restarted' | 'Deleted'
  content: string
}

const site = lifecycleOf<Site>().define({
  name: 'site',
  collection: 'Site',
  phases: {
    Creating: { next: ['Created'] },
    Created: { rest: true },
    Restarting: { next: ['Creating'] },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '0s' },
  },
  rules: [
    { when: 'Restarted', from: ['Created'], moveTo: 'Restarting' },
    { when: 'Deleted', from: ['Creating', 'Created', 'Restarting'], moveTo: 'Deleting' },
  ],
  // Nothing may run out while a write is held, however slow the machine is, and no renewal may undo a lease's end.
  lockTimeout: '1h',
  stepTimeout: '30m',
})

const RIGHTS = [{ apiGroups: [''], resources: ['configmaps'], verbs: ['get', 'create', 'patch', 'delete'] }]

describeWithCluster('a replica that is paused between its check and its write', (kubernetes) => {
  const database = useDatabase()
  let account: TestAccount
  let namespace: string
  let proxy: HoldingProxy
  let clusters: Cluster[]

  beforeEach(async () => {
    namespace = await kubernetes().namespace('fence')
    account = await kubernetes().serviceAccount(RIGHTS, { namespaces: [namespace] })
    await untilMayGet(account, page({ _id: 'a', state: 'Running', content: '' }))
    proxy = await HoldingProxy.before(account)
    clusters = []
  })
  afterEach(async () => {
    for (const cluster of clusters) cluster.close()
    await proxy.stop()
  })

  /** A replica of its own, on the API server itself or through the proxy. */
  function replica(kubeconfig: string): Replica {
    const cluster = Cluster.of({ name: 'test', kubeconfig, requestTimeout: '5m' })
    clusters.push(cluster)
    const lifecycle = { name: 'site', collection: 'Site', db: database.db }
    const where = (doc: Readonly<Site>, step: RunningStep) => cluster.hold(doc, step, lifecycle)
    const gone = async (doc: Site, held: HeldCluster) => (await held.remove(page(doc))).done
    return new Replica({
      db: database.db,
      lifecycles: [
        site.handle({
          Creating: onCluster(where, async (doc, step, held) => {
            await held.ensure(page(doc))
            return step.moveTo('Created')
          }),
          Restarting: onCluster(where, async (doc, step, held) =>
            (await gone(doc, held)) ? step.moveTo('Creating') : step.wait('going', { for: '100ms' }),
          ),
          Deleting: onCluster(where, async (doc, step, held) =>
            (await gone(doc, held)) ? step.moveTo('Deleted') : step.wait('going', { for: '100ms' }),
          ),
        }),
      ],
    })
  }

  const sites = () => database.db.collection<Document & { _id: string }>('Site')
  const page = (doc: Site): KubernetesObject => ({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: doc._id, namespace },
    data: { content: doc.content },
  })
  const contentNow = async () => {
    const found = await Cluster.of({ name: 'look', kubeconfig: account.kubeconfigText }).get(
      page({ _id: 'a', state: 'Running', content: '' }),
    )
    return (found?.['data'] as Document | undefined)?.['content']
  }
  const insert = (content: string) =>
    sites().insertOne({ _id: 'a', state: 'Running', content, phase: 'Creating', lockedAt: new Date(0) })
  /** As if the lease of the paused one had run out; it doesn't know. */
  const expire = (set: Document) => sites().updateOne({ _id: 'a' }, { $set: { lockedAt: new Date(1), ...set } })
  const untilPhase = (other: Replica, phase: string | undefined) =>
    eventually(async () => {
      await other.runOnce()
      return (await sites().findOne({ _id: 'a' }))?.['phase'] === phase
    })

  /**
   * One replica stands still with its next write to the cluster under way. Its lease ends, the owner writes `set`, and the other one
   * brings the document to `phase` (undefined: until it is gone). Then the late write arrives.
   */
  async function late(method: 'PATCH' | 'DELETE', other: Replica, set: Document, phase: string | undefined) {
    const paused = replica(proxy.kubeconfigText)
    const write = proxy.hold(method)
    let arrived = false
    void write.arrived.then(() => {
      arrived = true
    })
    await eventually(async () => {
      await paused.tick()
      return arrived
    })
    await expire(set)
    await untilPhase(other, phase)
    write.release()
    await paused.idle()
  }

  test('overwrites nothing of the one that took the document over, when it was about to create', async () => {
    await insert('old')
    await late('PATCH', replica(account.kubeconfigText), { content: 'new' }, 'Created')
    expect(await contentNow()).toBe('new')
  })

  test('leaves nothing behind, when everything was removed meanwhile', async () => {
    await insert('old')
    await late('PATCH', replica(account.kubeconfigText), { state: 'Deleted' }, undefined)
    expect(await contentNow()).toBeUndefined()
  })

  test('overwrites nothing, when it was about to change', async () => {
    const other = replica(account.kubeconfigText)
    await insert('first')
    await untilPhase(other, 'Created')
    await sites().updateOne({ _id: 'a' }, { $set: { phase: 'Creating', content: 'old', lockedAt: new Date(0) } })
    await late('PATCH', other, { content: 'new' }, 'Created')
    expect(await contentNow()).toBe('new')
  })

  test('removes nothing that was made anew, when it was about to remove', async () => {
    const other = replica(account.kubeconfigText)
    await insert('first')
    await untilPhase(other, 'Created')
    await sites().updateOne({ _id: 'a' }, { $set: { state: 'Restarted' } })
    await late('DELETE', other, { content: 'new', state: 'Running' }, 'Created')
    expect(await contentNow()).toBe('new')
  })
})
