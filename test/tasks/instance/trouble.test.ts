import { expect, test } from '@jest/globals'
import type { KubernetesObject } from '../../../src/kubernetes/index.js'
import { describeWithCluster } from '../../kubernetes/support/index.js'
import { useWorld } from './world.js'

/** More than any node has: such pods stay Pending, and a test says of them what a kubelet would. */
const NO_NODE = { requests: { cpu: '5000' } }

const pulling = {
  image: 'nowhere.example/shop:9',
  ready: false,
  restartCount: 0,
  state: { waiting: { reason: 'ImagePullBackOff', message: 'Back-off pulling image "nowhere.example/shop:9"' } },
}
const crashing = {
  image: 'shop:1',
  ready: false,
  restartCount: 4,
  state: { waiting: { reason: 'CrashLoopBackOff', message: 'back-off 1m20s restarting failed container' } },
  lastState: { terminated: { exitCode: 137, reason: 'OOMKilled' } },
}

/** Somebody else's. */
function deploymentIn(namespace: string, name: string) {
  const labels = { app: 'theirs' }
  const template = { metadata: { labels }, spec: { containers: [{ name: 'a', image: 'b' }] } }
  const spec = { replicas: 0, selector: { matchLabels: labels }, template }
  return { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name, namespace }, spec }
}

describeWithCluster('an instance that does not start', (cluster) => {
  const world = useWorld(cluster)

  test('says why, is stopped at the deadline with that reason, and starts when its owner has mended it', async () => {
    world.replica()
    const id = await world.insert({ state: 'Running', resources: NO_NODE, ports: [{ port: 80 }] })
    const waiting = await world.untilWaiting(id, /Unschedulable/)
    expect(waiting['trouble']).toMatch(
      /^Unschedulable: pod instance-\S+: 0\/\d+ nodes are available: .*Insufficient cpu/,
    )
    await world.pass(301_000)
    const stopped = await world.untilPhase(id, 'Stopped')
    expect(stopped).toMatchObject({ state: 'Stopped', trouble: null, stoppedBecause: waiting['trouble'] })
    expect(await world.history(id)).toEqual([
      ...['- again', 'deployment again', 'service again', 'ready deadline Stopping'],
      ...['- again', 'deployment moveTo Stopped'],
    ])
    expect(await world.left()).toEqual([`Service instance-${id}`])
    await world.write(id, { state: 'Running', resources: {} })
    await world.untilPhase(id, 'Started')
    expect(await world.document(id)).toMatchObject({ stoppedBecause: null, state: 'Running' })
  })

  test.each([
    [
      'an image',
      pulling,
      /^ImagePullBackOff: pod \S+, container instance: the image 'nowhere.example\/shop:9' can't be pulled: Back-off/,
    ],
    [
      'a crash',
      crashing,
      /^CrashLoopBackOff: pod \S+, container instance: it ended with exit code 137 \(OOMKilled\), restarted 4 times$/,
    ],
  ])('says what a kubelet says of %s', async (_what, status, words) => {
    world.replica()
    const id = await world.insert({ state: 'Running', resources: NO_NODE })
    await world.untilWaiting(id, /Unschedulable/)
    const [pod] = (await world.site.pods()) as [KubernetesObject]
    const containerStatuses = [{ ...status, name: 'instance', imageID: '' }]
    await world.site.patch(pod, { status: { containerStatuses } }, 'status')
    const waiting = await world.untilWaiting(id, words)
    expect(waiting['trouble']).toMatch(words)
    await world.write(id, { state: 'Stopped' })
    expect(await world.untilPhase(id, 'Stopped')).toMatchObject({ stoppedBecause: null })
  })

  test('for lack of quota says so: of pods while it waits, of Deployments by parking', async () => {
    const { namespace } = world.site
    const quota = { apiVersion: 'v1', kind: 'ResourceQuota', metadata: { name: 'tight', namespace } }
    await world.site.create({ ...quota, spec: { hard: { pods: '0' } } })
    await cluster().untilNoPodMayBeMade(namespace)
    world.replica()
    const id = await world.insert({ state: 'Running' })
    await world.untilWaiting(
      id,
      /^QuotaExceeded: its pods can't be created: .*exceeded quota: tight, requested: pods=1/,
    )
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, undefined)
    await world.site.patch(quota, { spec: { hard: { pods: null, 'count/deployments.apps': '0' } } })
    await cluster().untilRefused(deploymentIn(namespace, 'one-too-many'), 'exceeded quota')
    const refused = await world.insert({ state: 'Running' })
    expect(await world.untilParked(refused)).toMatch(/exceeded quota: tight, requested: count\/deployments.apps=1/)
    expect(await world.left()).toEqual([])
  })

  test('for what it says is parked before anything is made', async () => {
    world.replica()
    const wrong = {
      image: 'shop 1',
      replicas: -1,
      env: { 'A-B': 'x' },
      ports: [{ port: 70_000 }],
      resources: { limits: { memory: '1 GB' } },
    }
    const id = await world.insert({ ...wrong, state: 'Running' })
    const message = await world.untilParked(id)
    expect(message.split('; ').map((problem) => problem.split(':')[0])).toEqual([
      'image',
      'env.A-B',
      'resources.limits.memory',
      'replicas',
      'ports.0.port',
    ])
    expect(message).toContain('ports.0.port: expected a port from 1 to 65535, got 70000')
    expect(message).toContain(`resources.limits.memory: expected an amount such as '250m' or '128Mi', got "1 GB"`)
    expect(await world.left()).toEqual([])
    const right = { image: 'shop:1', replicas: 1, env: {}, ports: [], resources: {} }
    await world.write(id, { ...right, state: 'Updating' })
    await world.untilPhase(id, 'Started')
  })

  test('or stop says what it waits for', async () => {
    world.replica()
    const id = await world.insert({ state: 'Running' })
    await world.untilPhase(id, 'Started')
    const [pod] = (await world.site.pods()) as [KubernetesObject]
    await world.site.patch(pod, { metadata: { finalizers: ['example.com/hold'] } })
    await world.write(id, { state: 'Stopped' })
    await world.untilWaiting(
      id,
      new RegExp(`^pods are still there: ${pod.metadata.name} \\(held by example.com/hold\\)$`),
    )
    await world.site.patch(pod, { metadata: { finalizers: null } })
    await world.untilPhase(id, 'Stopped')
    expect(await world.left()).toEqual([])
  })

  test('in another region than it was placed in is parked', async () => {
    world.replica()
    const id = await world.insert({ placed: { region: 'eu-1', namespace: 'x', name: 'y' }, region: 'eu-2' })
    expect(await world.untilParked(id)).toMatch(/expected the region to stay 'eu-1'/)
  })

  test('for a Deployment of somebody else is parked; deleted, it leaves that alone', async () => {
    world.replica()
    const id = await world.insert({ phase: 'Stopped', state: 'Stopped', ports: [{ port: 80 }] })
    await world.site.create(deploymentIn(world.site.namespace, `instance-${id}`))
    await world.write(id, { state: 'Running' })
    expect(await world.untilParked(id)).toMatch(
      /Deployment instance-\S+ in namespace \S+ .* doesn't belong to instance/,
    )
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, undefined)
    expect(await world.left()).toEqual([`Deployment instance-${id}`])
  })
})
