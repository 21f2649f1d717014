import { beforeEach, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { Cluster, type KindRef, singleRegion } from '../../../src/kubernetes/index.js'
import { PARKED_AT } from '../../../src/lock/index.js'
import { describeWithCluster } from '../../kubernetes/support/index.js'
import { type Id, NOTHING, useWorld } from './world.js'

const INSTANCE = { image: 'registry.example/shop:1', ports: [{ port: 80, containerPort: 8080 }] }
const NAMESPACE = { apiVersion: 'v1', kind: 'Namespace' }
const KINDS: Readonly<Record<string, KindRef>> = {
  deployments: { apiVersion: 'apps/v1', kind: 'Deployment' },
  services: { apiVersion: 'v1', kind: 'Service' },
  ingresses: { apiVersion: 'networking.k8s.io/v1', kind: 'Ingress' },
  certificates: { apiVersion: 'cert-manager.io/v1', kind: 'Certificate' },
  secrets: { apiVersion: 'v1', kind: 'Secret' },
}

describeWithCluster('a gateway with its instance and domains in a region', (testCluster) => {
  const world = useWorld()
  let cluster: Cluster
  let namespace: string

  beforeEach(async () => {
    cluster = Cluster.of({ name: 'eu', kubeconfig: testCluster().kubeconfigText })
    namespace = await testCluster().namespace('gateway')
  })

  const region = async (rules: { namespace: string; createNamespace?: boolean }) => {
    const tls = { enabled: true, issuer: await testCluster().issuer() }
    return singleRegion('eu', cluster, { ...rules, gateway: { domain: 'eu.example', tls } })
  }

  /** How much of Phaselock's is there of each kind. */
  const there = async (place = namespace): Promise<Record<string, number>> => {
    const labels = 'phaselock.dev/lifecycle'
    const count = async ([name, kind]: [string, KindRef]) => [
      name,
      (await cluster.list(kind, { namespace: place, labels })).length,
    ]
    return Object.fromEntries(await Promise.all(Object.entries(KINDS).map(count)))
  }

  const child = async (collection: string, id: Id): Promise<Document> =>
    (await world.db.collection(collection).findOne({ _id: id as never })) ?? {}

  test('created at rest; Running starts the instance, then the domains; Stopped stops them; Deleted leaves nothing', async () => {
    const regions = await region({ namespace })
    for (let n = 0; n < 2; n += 1) world.replica({ regions, instance: INSTANCE, keepFor: '0s' })
    const id = await world.insert({ name: 'shop', customDomain: 'shop.example.org' })
    await world.untilPhase(id, 'Created')
    expect(await world.gateway(id)).toMatchObject({
      host: 'shop.example.org',
      placed: { region: 'eu', namespace, ownNamespace: false },
    })
    // The certificate is asked for at once.
    expect(await there()).toMatchObject({ deployments: 0, ingresses: 0, certificates: 1 })

    await world.want(id, 'Running')
    await world.untilPhase(id, 'Started')
    expect(await there()).toEqual({ deployments: 1, services: 1, ingresses: 1, certificates: 1, secrets: 1 })
    const [ingress] = await cluster.list(KINDS['ingresses']!, { namespace })
    const [service] = await cluster.list(KINDS['services']!, { namespace, labels: 'phaselock.dev/lifecycle=instance' })
    expect((ingress!['spec'] as any).rules).toMatchObject([
      {
        host: 'shop.example.org',
        http: { paths: [{ backend: { service: { name: service!.metadata.name, port: { number: 80 } } } }] },
      },
    ])
    expect(await world.served(id)).toMatchObject({ routes: 1 })

    // A domain of its owner's joins it: it needs to say only whose it is.
    const join = (name: string) =>
      world
        .collection('runtimeDomain')
        .insertOne({ _id: name, phase: 'Creating', gatewayId: id, host: `${name}.eu.example` })
    await join('second')
    await world.until(async () => expect(await child('RuntimeDomain', 'second')).toMatchObject({ phase: 'Created' }))
    expect(await there()).toMatchObject({ ingresses: 2 })

    await world.want(id, 'Stopped')
    await world.untilPhase(id, 'Stopped')
    expect(await there()).toMatchObject({ deployments: 0, ingresses: 0, certificates: 1 })
    expect(await world.served(id)).toMatchObject({ routes: 0 })
    expect(await child('RuntimeDomain', id)).toMatchObject({ phase: 'Stopped' })
    expect(await child('Instance', id)).toMatchObject({ phase: 'Stopped' })
    await join('third')
    await world.until(async () => expect(await child('RuntimeDomain', 'third')).toMatchObject({ phase: 'Stopped' }))

    await world.want(id, 'Running')
    await world.untilPhase(id, 'Started')
    await world.until(async () => expect(await there()).toMatchObject({ deployments: 1, ingresses: 3 }))

    await world.want(id, 'Deleted')
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
    expect(await world.children(id)).toEqual(NOTHING)
    expect(await world.db.collection('Instance').countDocuments()).toBe(0)
    expect(await there()).toEqual({ deployments: 0, services: 0, ingresses: 0, certificates: 0, secrets: 0 })
    expect(await world.gatewayDatabases()).toEqual([])
  })

  test('in a namespace of its own, which comes and goes with it', async () => {
    const regions = await region({ namespace: 'gw-{gatewayId}', createNamespace: true })
    world.replica({ regions, instance: INSTANCE, keepFor: '1h' })
    const id = await world.insert({ state: 'Running' })
    const own = { ...NAMESPACE, metadata: { name: `gw-${id}` } }
    await world.untilPhase(id, 'Started')
    expect(await there(`gw-${id}`)).toMatchObject({ deployments: 1, ingresses: 1 })
    await world.want(id, 'Deleted')
    await world.untilPhase(id, 'Deleted')
    expect(await cluster.get(own)).toBeUndefined()
    const order = ['triggers', 'functions', 'stages', 'domains', 'instance', 'namespace', 'database']
    const steps = (await world.history(id)).filter((entry) => entry.endsWith('again'))
    const deleting = steps.slice(-order.length + 1).map((entry) => entry.split(' ')[0])
    expect(deleting).toEqual(['-', ...order.slice(1, -1)])
  })

  test('a namespace of somebody else’s is neither used nor removed, and keeps the gateway from nothing but being created', async () => {
    const regions = await region({ namespace: `${namespace}-{gatewayId}`, createNamespace: true })
    world.replica({ regions, instance: INSTANCE, keepFor: '0s' })
    const name = `${namespace}-taken`
    await testCluster().make({ ...NAMESPACE, metadata: { name } })
    const id = await world.insert({ gatewayId: 'taken' })
    await world.until(async () => expect((await world.gateway(id))['lockedAt']).toEqual(PARKED_AT))
    await world.want(id, 'Deleted')
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
    const left = await cluster.get({ ...NAMESPACE, metadata: { name } })
    expect(left?.metadata).not.toHaveProperty('deletionTimestamp')
  })

  test('says why it isn’t started: what its instance says, or its domain', async () => {
    const regions = await region({ namespace })
    world.replica({ regions, keepFor: '0s' })
    const wrong = await world.insert({ state: 'Running', instance: { image: 'no image at all' } })
    const bare = await world.insert({ state: 'Running', instance: { image: 'registry.example/shop:1' } })
    await world.until(async () => {
      expect((await world.gateway(wrong))['progress'].waitingFor).toMatch(
        /^Instance .* is parked: image: expected an image/,
      )
      expect((await world.gateway(bare))['progress'].waitingFor).toMatch(
        /^RuntimeDomain .* is parked: expected a service/,
      )
    })
    // It can be stopped all the same, and started again.
    for (const id of [wrong, bare]) await world.want(id, 'Stopped')
    for (const id of [wrong, bare]) await world.untilPhase(id, 'Stopped')
    await world.want(wrong, 'Running')
    await world.untilPhase(wrong, 'Starting')
    for (const id of [wrong, bare]) await world.want(id, 'Deleted')
    await world.until(async () => expect(await world.collection('gateway').countDocuments()).toBe(0))
    expect(await there()).toMatchObject({ deployments: 0, ingresses: 0 })
  })

  test('a process without regions leaves such a gateway and its domains alone', async () => {
    const regions = await region({ namespace })
    const within = world.replica({ regions, instance: INSTANCE, keepFor: '0s' })
    const id = await world.insert({ state: 'Running' })
    await world.untilPhase(id, 'Started', [within])
    const without = world.replica({ keepFor: '0s' })
    await world.want(id, 'Deleted')
    await world.until(async () => {
      const { phase, progress, lockedAt } = await world.gateway(id)
      expect({ phase, waitingFor: progress.waitingFor }).toMatchObject({
        phase: 'Deleting',
        waitingFor: 'region eu: the gateway is there, and this process has no regions',
      })
      expect(lockedAt).not.toEqual(PARKED_AT)
    }, [without])
    expect(await there()).toMatchObject({ deployments: 1, ingresses: 1 })
    await world.until(async () => expect(await world.gateway(id)).toEqual({}), [within])
    expect(await there()).toMatchObject({ deployments: 0, ingresses: 0 })
  })
})
