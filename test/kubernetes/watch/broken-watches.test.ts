import { expect, test } from '@jest/globals'
import { Cluster, type KubernetesObject } from '../../../src/kubernetes/index.js'
import { KindWatch, type KindWatchOptions } from '../../../src/kubernetes/watch/kind-watch.js'
import { type Change, Verdicts } from '../../../src/kubernetes/watch/verdicts.js'
import { systemClock } from '../../../src/time/index.js'
import { eventually } from '../../support/database.js'
import { describeWithCluster } from '../support/index.js'
import { Cable } from './cable.js'
import { CONFIG_MAP, type Site, sites, useSites, verdictOf, type Waiting } from './sites.js'

const { clusterOf, onEnd, started, untilAsleep, untilIn } = useSites()

describeWithCluster('a watch that breaks', (cluster) => {
  const mapIn = (namespace: string) => (doc: Readonly<Pick<Site, '_id'>>) => ({
    ...CONFIG_MAP,
    metadata: { name: doc._id, namespace },
  })
  const say = (object: KubernetesObject, verdict: string) =>
    cluster().admin.patch({ ...object, data: { verdict } } as never)

  async function cabled() {
    const cable = await Cable.lay(cluster().kubeconfigText)
    onEnd(() => cable.close())
    return cable
  }

  test('the connection is cut, and the server unreachable for a while: what changed meanwhile is told then', async () => {
    const map = mapIn(await cluster().namespace('watch'))
    const cable = await cabled()
    // Handlers have a connection of their own: only the watch is cut.
    const rig = { definition: sites(), cluster: clusterOf(cluster().kubeconfigText), ref: map }
    const watched = clusterOf(cable.kubeconfig, 'behind a cable')
    const { site, log } = await started({ ...rig, watch: { clusters: () => [watched] } })
    const ids = ['a', 'b', 'c']
    await site.insertMany(ids.map((_id) => ({ _id })))
    await untilAsleep(...ids)
    await say(map({ _id: 'a' }), 'ready')
    await untilIn('Created', 'a')
    cable.cut()
    await say(map({ _id: 'b' }), 'ready')
    await eventually(() => expect(log()).toContain('cluster behind a cable is not watched'))
    cable.mend()
    await untilIn('Created', 'b')
    await say(map({ _id: 'c' }), 'ready')
    await untilIn('Created', 'c')
    expect(log().match(/is not watched/g)).toHaveLength(1)
    await eventually(() => expect(log()).toContain('cluster behind a cable is watched again'))
  })

  test('the connection falls silent without an end: it is opened again', async () => {
    const map = mapIn(await cluster().namespace('watch'))
    const cable = await cabled()
    const rig = { definition: sites(), cluster: clusterOf(cluster().kubeconfigText), ref: map }
    const watched = clusterOf(cable.kubeconfig, 'behind a cable')
    const { site } = await started({ ...rig, watch: { clusters: () => [watched], silence: '2s' } })
    await site.insertMany([{ _id: 'a' }, { _id: 'b' }])
    await untilAsleep('a', 'b')
    await say(map({ _id: 'a' }), 'ready')
    await untilIn('Created', 'a')
    cable.freeze()
    await say(map({ _id: 'b' }), 'ready')
    await untilIn('Created', 'b')
  })

  test('no permission to watch: said once, with the verb; polling goes on, and a right that is given later is used', async () => {
    const namespace = await cluster().namespace('watch')
    const map = mapIn(namespace)
    const rules = [{ apiGroups: [''], resources: ['configmaps'], verbs: ['get', 'list'] }]
    const account = await cluster().serviceAccount(rules, { namespaces: [namespace] })
    const polling: Waiting = async (doc, step, held) => {
      const live = await held.get(map(doc))
      const pause = doc._id === 'polls' ? '100ms' : '1h'
      return live && verdictOf(live) === 'ready' ? step.moveTo('Created') : step.wait('its verdict', { for: pause })
    }
    const rig = { definition: sites(), cluster: clusterOf(cluster().kubeconfigText), ref: map, waiting: polling }
    const narrow = clusterOf(account.kubeconfigText, 'narrow')
    const kinds = [{ ...CONFIG_MAP, verdict: verdictOf }]
    const watch = { clusters: () => [narrow], namespaces: () => [namespace], kinds }
    const { site, log } = await started({ ...rig, watch })
    await site.insertMany([{ _id: 'polls' }, { _id: 'sleeps' }])
    await untilAsleep('sleeps')
    await eventually(() => expect(log()).toMatch(/is not watched.*the right to watch configmaps in namespace/))
    await say(map({ _id: 'polls' }), 'ready')
    await untilIn('Created', 'polls')
    const subjects = [{ kind: 'ServiceAccount', name: account.name, namespace: account.namespace }]
    await cluster().make({
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'Role',
      metadata: { name: 'may-watch', namespace },
      rules: [{ ...rules[0]!, verbs: ['watch'] }],
    })
    await cluster().make({
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'RoleBinding',
      metadata: { name: 'may-watch', namespace },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'may-watch' },
      subjects,
    })
    await say(map({ _id: 'sleeps' }), 'ready')
    await untilIn('Created', 'sleeps')
    expect(log().match(/is not watched/g)).toHaveLength(1)
    expect(log()).toContain('ConfigMap in namespace')
    expect(log()).toContain('is watched now')
  })

  test('a kind that the cluster does not know is said once and harms nothing', async () => {
    const map = mapIn(await cluster().namespace('watch'))
    const own = clusterOf(cluster().kubeconfigText)
    const kinds = [
      { apiVersion: 'example.com/v1', kind: 'Gadget' },
      { ...CONFIG_MAP, verdict: verdictOf },
    ]
    const { site, log } = await started({ definition: sites(), cluster: own, ref: map, watch: { kinds } })
    await site.insert({ _id: 'a' })
    await untilAsleep('a')
    await eventually(() => expect(log()).toMatch(/Gadget of cluster test is not watched.*install its CustomResource/))
    await say(map({ _id: 'a' }), 'ready')
    await untilIn('Created', 'a')
  })

  test('from a point that the server has forgotten (410) it begins with a list; what is not in a list is gone', async () => {
    const namespace = await cluster().namespace('watch')
    const lifecycle = sites().name
    const labels = { 'phaselock.dev/lifecycle': lifecycle }
    const annotations = (id: string) => ({
      'phaselock.dev/id': JSON.stringify({ _id: id }),
      'phaselock.dev/database': 'shop',
    })
    const make = (id: string) =>
      cluster().make({ ...CONFIG_MAP, metadata: { name: id, namespace, labels, annotations: annotations(id) } })
    const verdicts = new Verdicts('shop', verdictOf)
    const seen: unknown[] = []
    const heard: boolean[] = []
    const options: KindWatchOptions = {
      ...{ cluster: clusterOf(cluster().kubeconfigText), kind: CONFIG_MAP, namespace, verdicts },
      ...{ silenceMs: 150_000, longestPauseMs: 1_000, clock: systemClock, random: Math.random },
      labels: `phaselock.dev/lifecycle=${lifecycle}`,
      onChanges: (changes: readonly Change[]) => void seen.push(...changes.map(({ id }) => id)),
      onHearing: ({ heard: now }) => void heard.push(now),
    }
    const watch = async (since: string | undefined, until: () => void) => {
      const over = new AbortController()
      const running = new KindWatch(options, since).run(over.signal)
      await eventually(until)
      over.abort()
      await running
    }
    const made = await Promise.all(['a', 'b'].map(make))
    await watch(undefined, () => expect(verdicts.size).toBe(2))
    expect(seen).toEqual([])
    await cluster().admin.delete(made[0]!)
    await say(mapIn(namespace)({ _id: 'b' }), 'ready')
    // The first revision of etcd: no server remembers it.
    await watch('1', () => expect([...seen].sort()).toEqual(['a', 'b']))
    expect(verdicts.size).toBe(1)
    expect(heard).not.toContain(false)
  })
})

test('a cluster that is not there harms nothing', async () => {
  const nowhere = Cluster.of({ name: 'nowhere', kubeconfig: { file: '/nonexistent/kubeconfig' } })
  onEnd(() => nowhere.close())
  const { replica } = await started({ definition: sites(), cluster: nowhere, ref: () => ({}) as KubernetesObject })
  expect(replica.status().notReady).toEqual([])
})
