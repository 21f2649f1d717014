import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Cluster, type HeldCluster, type KubernetesObject, readinessOf, removalOf } from '../../src/kubernetes/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { holdThing } from './support/holds.js'
import { describeWithCluster } from './support/index.js'

const template = { metadata: { labels: { app: 'a' } }, spec: { containers: [{ name: 'a', image: 'example.com/a' }] } }
const selector = { matchLabels: { app: 'a' } }

describeWithCluster('readiness, as real controllers have it', (kubernetes) => {
  const database = useDatabase()
  let cluster: Cluster
  let namespace: string
  beforeAll(async () => {
    cluster = Cluster.of({ name: 'test', kubeconfig: kubernetes().kubeconfigText })
    namespace = await kubernetes().namespace('ready')
  })
  afterAll(() => cluster.close())

  const object = (apiVersion: string, kind: string, name: string, spec: object): KubernetesObject => ({
    ...{ apiVersion, kind, metadata: { name, namespace } },
    spec,
  })
  const held = () => holdThing({ cluster, db: database.db }, 'a')
  async function becomesReady(mine: HeldCluster, what: KubernetesObject): Promise<void> {
    await eventually(async () => expect(await mine.ready(what)).toMatchObject({ done: true }))
  }
  async function setStatus(what: KubernetesObject, status: object): Promise<void> {
    const http = { method: 'PATCH', body: { status }, contentType: 'application/merge-patch+json' } as const
    const { name } = what.metadata
    await cluster.answerTo({ verb: 'patch', kind: what, namespace, object: name, subresource: 'status', http })
  }

  test('workloads: all replicas of the last version; a Job when it is complete', async () => {
    const mine = await held()
    const deployment = object('apps/v1', 'Deployment', 'd', { replicas: 2, selector, template })
    expect(await mine.ready(deployment)).toEqual({
      done: false,
      text: `there is no Deployment d in namespace ${namespace}`,
    })
    const made = await mine.ensure(deployment)
    expect(readinessOf(made)).toMatchObject({ done: false, text: expect.stringMatching(/^Deployment d .*not seen/) })
    const others = [
      object('apps/v1', 'StatefulSet', 's', { replicas: 1, selector, template, serviceName: 'a' }),
      object('apps/v1', 'DaemonSet', 'n', { selector, template }),
      object('v1', 'ConfigMap', 'c', {}),
      object('v1', 'Service', 'v', { ports: [{ port: 80 }], selector: { app: 'a' } }),
      object('networking.k8s.io/v1', 'Ingress', 'i', {
        defaultBackend: { service: { name: 'v', port: { number: 80 } } },
      }),
    ].map(({ spec, ...rest }) => (rest.kind === 'ConfigMap' ? rest : { ...rest, spec }))
    for (const other of others) await mine.ensure(other)
    for (const one of [deployment, ...others]) await becomesReady(mine, one)
    const address = await mine.ready(others.at(-1)!, { address: true })
    expect(address).toMatchObject({ done: false, text: 'Ingress i has no address yet' })
    const rolled = await mine.ensure({ ...deployment, spec: { replicas: 3, selector, template } })
    expect(readinessOf(rolled).done).toBe(false)
    await becomesReady(mine, deployment)
    const foreground = await mine.remove(deployment, { propagation: 'Foreground' })
    const reason = 'Deployment d is still there until all that belongs to it is gone'
    // All of it may be gone by now.
    expect([
      { done: true, text: expect.any(String) },
      { done: false, text: reason },
    ]).toContainEqual(foreground)
    const live = { ...deployment, metadata: { ...deployment.metadata, finalizers: ['foregroundDeletion'] } }
    expect(removalOf(deployment, live)).toEqual({ done: false, text: reason })
    await eventually(async () => expect(await mine.remove(deployment)).toMatchObject({ done: true }))
  })

  test('a Certificate: its condition Ready, in its own words', async () => {
    const mine = await held()
    const issuerRef = await kubernetes().issuer()
    const spec = { secretName: 'web-tls', dnsNames: ['a.example.com'] }
    const certificate = (to: object) => object('cert-manager.io/v1', 'Certificate', 'web', { ...spec, issuerRef: to })
    await mine.ensure(certificate({ name: 'nobody', kind: 'ClusterIssuer' }))
    await eventually(async () => {
      const readiness = await mine.ready(certificate({}))
      expect(readiness).toMatchObject({
        text: expect.stringMatching(/^Certificate web is not Ready: DoesNotExist: /),
      })
    })
    await mine.ensure(certificate(issuerRef))
    await becomesReady(mine, certificate({}))
  })

  test('a load balancer and a claim: their address and volume', async () => {
    const mine = await held()
    const service = object('v1', 'Service', 'lb', { type: 'LoadBalancer', ports: [{ port: 80 }] })
    expect(readinessOf(await mine.ensure(service))).toMatchObject({
      text: 'Service lb has no load balancer address yet',
    })
    await setStatus(service, { loadBalancer: { ingress: [{ ip: '192.0.2.1' }] } })
    expect(await mine.ready(service)).toMatchObject({ done: true })
    const resources = { requests: { storage: '1Mi' } }
    const accessModes = ['ReadWriteOnce']
    const volume = { capacity: resources.requests, accessModes, hostPath: { path: '/nowhere' } }
    const metadata = { name: `volume-${namespace}` }
    // First, so that the claim needs no controller's next round.
    const made = await kubernetes().make({ apiVersion: 'v1', kind: 'PersistentVolume', metadata, spec: volume })
    await eventually(async () => expect((await cluster.get(made))?.['status']).toMatchObject({ phase: 'Available' }))
    const claim = object('v1', 'PersistentVolumeClaim', 'data', {
      ...{ accessModes, resources, storageClassName: '', volumeName: `volume-${namespace}` },
    })
    expect(readinessOf(await mine.ensure(claim))).toMatchObject({
      done: false,
      text: expect.stringMatching('Pending'),
    })
    await becomesReady(mine, claim)
    await mine.remove(claim)
  })
})

describe('readiness of what a test cannot bring about', () => {
  const judged = (kind: string, status: object, spec: object = {}, generation = 2, apiVersion = 'apps/v1') =>
    readinessOf({ apiVersion, kind, metadata: { name: 'x', generation }, spec, status } as KubernetesObject)
  const seen = { observedGeneration: 2 }
  const condition = (type: string, status: string, more: object = {}) => ({ conditions: [{ type, status, ...more }] })

  test.each([
    [
      'Deployment',
      { observedGeneration: 1, availableReplicas: 1 },
      {},
      'is not Ready: its controller has not seen the last change yet',
    ],
    ['Deployment', { ...seen, updatedReplicas: 1 }, { replicas: 3 }, 'has 1 of 3 replicas of its last version'],
    [
      'Deployment',
      {
        ...seen,
        updatedReplicas: 1,
        ...condition('ReplicaFailure', 'True', { reason: 'FailedCreate', message: 'exceeded quota' }),
      },
      { replicas: 3 },
      'has 1 of 3 replicas of its last version: FailedCreate: exceeded quota',
    ],
    [
      'Deployment',
      { ...seen, updatedReplicas: 3, availableReplicas: 3, unavailableReplicas: 1 },
      { replicas: 3 },
      'has 2 of 3 replicas available',
    ],
    [
      'Deployment',
      { ...seen, updatedReplicas: 2, availableReplicas: 2, replicas: 3 },
      { replicas: 2 },
      'still has 3 replicas instead of 2',
    ],
    [
      'StatefulSet',
      {
        ...seen,
        readyReplicas: 2,
        availableReplicas: 2,
        updatedReplicas: 1,
        currentRevision: 'a',
        updateRevision: 'b',
      },
      { replicas: 2 },
      'has 1 of 2 replicas of its last version',
    ],
    [
      'DaemonSet',
      { ...seen, desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 1 },
      {},
      'has 1 of 2 pods available',
    ],
  ])('%s %j', (kind, status, spec, says) => {
    expect(judged(kind, status, spec)).toMatchObject({ done: false, text: `${kind} x ${says}` })
  })

  test('a Job that has given up, and a claim that has lost its volume, have failed', () => {
    const failed = condition('Failed', 'True', { reason: 'BackoffLimitExceeded', message: 'no more tries' })
    expect(judged('Job', failed, {}, 1, 'batch/v1')).toMatchObject({
      ...{ done: false, failed: true, text: 'Job x has failed: BackoffLimitExceeded: no more tries' },
    })
    expect(judged('Job', { active: 1, failed: 2 }, {}, 1, 'batch/v1')).toMatchObject({
      text: 'Job x is running (1 pods, after 2 failed)',
    })
    expect(judged('Job', condition('Complete', 'True'), {}, 1, 'batch/v1')).toMatchObject({ done: true })
    expect(judged('PersistentVolumeClaim', { phase: 'Lost' }, {}, 1, 'v1')).toMatchObject({ failed: true })
  })

  test('a custom kind: Ready or Available of the present spec, or the condition that was asked for', () => {
    const custom = (status: object) => judged('Widget', status, {}, 2, 'example.com/v1')
    expect(custom({})).toMatchObject({ text: 'Widget x is not Ready yet: it has no condition Ready or Available' })
    expect(custom(condition('Available', 'True'))).toMatchObject({ done: true })
    expect(custom(condition('Ready', 'True', { observedGeneration: 1 }))).toMatchObject({ done: false })
    const widget = {
      apiVersion: 'example.com/v1',
      kind: 'Widget',
      metadata: { name: 'x' },
      status: condition('Synced', 'False'),
    }
    expect(readinessOf(widget, { condition: 'Synced' })).toMatchObject({ text: 'Widget x is not Synced' })
  })

  test('a namespace that is being deleted: what it says remains', () => {
    const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'gw' } }
    const conditions = [
      { type: 'NamespaceContentRemaining', status: 'True', message: 'Some resources are remaining: pods.' },
      { type: 'NamespaceDeletionDiscoveryFailure', status: 'False', message: 'All resources discovered' },
    ]
    expect(removalOf(namespace, { ...namespace, status: { phase: 'Terminating', conditions } })).toEqual({
      done: false,
      text: 'Namespace gw is still there: Some resources are remaining: pods.',
    })
  })
})
