import { expect, test } from '@jest/globals'
import type { Cluster, KubernetesObject } from '../../../src/kubernetes/index.js'
import { eventually } from '../../support/database.js'
import { gate } from '../../support/thing.js'
import { describeWithCluster } from '../support/index.js'
import { CERTIFICATE, CONFIG_MAP, type Site, sites, useSites, verdictOf, type Waiting } from './sites.js'

const { clusterOf, started, untilAsleep, untilIn } = useSites()

/** Pauses are an hour: what goes on was woken. */
describeWithCluster('watches', (cluster) => {
  const mapIn = (namespace: string) => (doc: Readonly<Pick<Site, '_id'>>) => ({
    ...CONFIG_MAP,
    metadata: { name: doc._id, namespace },
  })

  const say = (object: KubernetesObject, verdict: string, more: object = {}) =>
    cluster().admin.patch({ ...object, data: { verdict }, ...more } as never)

  const forEver: Waiting = async (_doc, step) => step.wait('the next verdict', { for: '1h' })

  test('certificates: ready, and gone', async () => {
    const namespace = await cluster().namespace('watch')
    const issuerRef = await cluster().issuer()
    const ref = ({ _id }: Readonly<Site>) => ({
      ...CERTIFICATE,
      metadata: { name: _id, namespace, finalizers: ['example.com/hold'] },
      spec: { secretName: `${_id}-tls`, dnsNames: [`${_id}.example.com`], issuerRef },
    })
    const { site, log } = await started({ definition: sites(), cluster: clusterOf(cluster().kubeconfigText), ref })
    const ids = ['a', 'b', 'c']
    await site.insertMany(ids.map((_id) => ({ _id })))
    await untilIn('Created', ...ids)
    for (const id of ids) await site.setState(id, 'Deleted')
    await untilIn('Deleting', ...ids)
    await untilAsleep(...ids)
    for (const _id of ids) {
      const metadata = { ...ref({ _id }).metadata, finalizers: [] }
      await cluster().admin.patch({ ...CERTIFICATE, metadata } as never, ...MERGED)
    }
    await untilIn('Deleted', ...ids)
    expect(log()).not.toContain('not watched')
  })

  test('three replicas hear of it: one step for each change, none for an event that changes nothing', async () => {
    const map = mapIn(await cluster().namespace('watch'))
    const rig = { definition: sites(), cluster: clusterOf(cluster().kubeconfigText), ref: map, waiting: forEver }
    const replicas = await Promise.all(['r1', 'r2', 'r3'].map((name) => started({ ...rig, name })))
    const ids = ['a', 'b', 'c', 'd']
    const stepped = () => {
      const all = replicas.flatMap(({ steps }) => steps)
      return ids.map((id) => all.filter((step) => step === `${id} wait`).length)
    }
    await replicas[0]!.site.insertMany(ids.map((_id) => ({ _id })))
    await untilAsleep(...ids)
    expect(stepped()).toEqual([1, 1, 1, 1])
    for (const round of [1, 2, 3]) {
      for (const _id of ['a', 'b', 'c']) await say(map({ _id }), `verdict ${round}`)
      await eventually(() => expect(stepped()).toEqual([round + 1, round + 1, round + 1, 1]))
      await untilAsleep(...ids)
      for (const _id of ['a', 'b', 'c']) await say(map({ _id }), `verdict ${round}`, { immutable: false })
    }
    const woken = replicas.flatMap((replica) => replica.woken)
    expect(woken.reduce((sum, { count }) => sum + count, 0)).toBe(9)
  })

  test('a document that is held when it happens goes on when it has been let go', async () => {
    const map = mapIn(await cluster().namespace('watch'))
    const [seen, go] = [gate(), gate()]
    const waiting: Waiting = async (doc, step, held) => {
      const live = await held.get(map(doc))
      if (live && verdictOf(live) === 'ready') return step.moveTo('Created')
      if (doc._id === 'held') {
        seen.open()
        await go.wait
      }
      return step.wait('it was not ready when it was looked at', { for: '1h' })
    }
    const rig = { definition: sites(), cluster: clusterOf(cluster().kubeconfigText), ref: map, waiting }
    const { site } = await started(rig)
    await site.insertMany([{ _id: 'held' }, { _id: 'later' }])
    await seen.wait
    await untilAsleep('later')
    // Events of a kind come in order: when the second has had its effect, the first has met a held document.
    await say(map({ _id: 'held' }), 'ready')
    await say(map({ _id: 'later' }), 'ready')
    await untilIn('Created', 'later')
    go.open()
    await untilIn('Created', 'held')
  })

  test('what has happened before a replica was there is found when it begins to watch', async () => {
    const map = mapIn(await cluster().namespace('watch'))
    const rig = { definition: sites(), cluster: clusterOf(cluster().kubeconfigText), ref: map }
    const first = await started(rig)
    const ids = ['a', 'b']
    await first.site.insertMany(ids.map((_id) => ({ _id })))
    await untilAsleep(...ids)
    await first.replica.stop()
    await say(map({ _id: 'a' }), 'ready')
    await started(rig)
    await untilIn('Created', 'a')
    await untilIn('Creating', 'b')
  })

  test('clusters come and go', async () => {
    const map = mapIn(await cluster().namespace('watch'))
    const own = clusterOf(cluster().kubeconfigText)
    let clusters: Cluster[] = []
    const rig = { definition: sites(), cluster: own, ref: map, waiting: forEver }
    const { site, steps } = await started({ ...rig, watch: { clusters: async () => clusters, refresh: '200ms' } })
    await site.insert({ _id: 'a' })
    await untilAsleep('a')
    await say(map({ _id: 'a' }), 'first')
    clusters = [own]
    await eventually(() => expect(steps).toEqual(['a make', 'a wait', 'a wait']))
    await say(map({ _id: 'a' }), 'second')
    await eventually(() => expect(steps).toHaveLength(4))
  })
})

/** How the client is told that a patch is a merge patch. */
const MERGED = [undefined, undefined, undefined, undefined, 'application/merge-patch+json'] as const
