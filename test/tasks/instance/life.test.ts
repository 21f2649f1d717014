import { expect, test } from '@jest/globals'
import { describeWithCluster } from '../../kubernetes/support/index.js'
import { crashingOnce } from '../pods/world.js'
import { useWorld } from './world.js'

/** More than any node has. */
const NO_NODE = { requests: { cpu: '5000' } }

describeWithCluster("an instance's life", (cluster) => {
  const world = useWorld(cluster)

  test('starts, is restarted, stops, starts and is deleted', async () => {
    world.replica()
    const id = await world.insert({ replicas: 2, ports: [{ port: 80, containerPort: 8080 }], state: 'Running' })
    const started = await world.untilPhase(id, 'Started')
    const name = `instance-${id}`
    const { namespace } = world.site
    expect(started).toMatchObject({ placed: { namespace, name }, address: `${name}.${namespace}.svc`, trouble: null })
    expect(await world.history(id)).toEqual(['- again', 'deployment again', 'service again', 'ready moveTo Started'])
    expect(await world.deployment(id)).toMatchObject({ spec: { replicas: 2 }, status: { readyReplicas: 2 } })
    expect(await world.service(id)).toMatchObject({ spec: { ports: [{ port: 80, targetPort: 8080 }] } })
    const first = (await world.site.pods()).map(({ metadata }) => metadata.name).sort()
    expect(first).toHaveLength(2)

    await world.write(id, { state: 'Restarting' })
    await world.until(async () => {
      expect(await world.document(id)).toMatchObject({
        phase: 'Started',
        state: 'Running',
        restarted: expect.any(Number),
      })
    })
    const second = await world.site.pods()
    expect(second.map(({ metadata }) => metadata.name).filter((name) => first.includes(name))).toEqual([])

    await world.write(id, { state: 'Stopped' })
    expect(await world.untilPhase(id, 'Stopped')).toMatchObject({ stoppedBecause: null, state: 'Stopped' })
    expect(await world.left()).toEqual([`Service ${name}`])
    await world.write(id, { state: 'Running' })
    await world.untilPhase(id, 'Started')
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, undefined)
    expect(await world.left()).toEqual([])
  })

  test('its pods have no rights', async () => {
    world.replica({ podSecurity: 'restricted' })
    const env = { MODE: 'fast', PASSWORD: { secret: { name: 'shop', key: 'password' } }, LIMIT: 5 }
    const resources = { requests: { cpu: '100m', memory: '64Mi' }, limits: { memory: '128Mi' } }
    const id = await world.insert({ env, resources, readiness: { port: 8080, path: '/healthz' } })
    await world.untilPhase(id, 'Started')
    const [pod] = await world.site.pods()
    expect(pod?.['spec']).toMatchObject({
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
      containers: [
        {
          image: 'shop:1',
          resources,
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
          readinessProbe: { httpGet: { path: '/healthz', port: 8080 } },
          env: [
            { name: 'LIMIT', value: '5' },
            { name: 'MODE', value: 'fast' },
            { name: 'PASSWORD', valueFrom: { secretKeyRef: { name: 'shop', key: 'password' } } },
          ],
        },
      ],
    })
    expect(await world.service(id)).toBeUndefined()
  })

  test('with no replicas it is started without pods, and scaled up later', async () => {
    world.replica()
    const id = await world.insert({ replicas: 0 })
    await world.untilPhase(id, 'Started')
    expect(await world.site.pods()).toEqual([])
    await world.write(id, { replicas: 1, state: 'Updating' })
    await world.until(async () =>
      expect(await world.document(id)).toMatchObject({ phase: 'Started', state: 'Running' }),
    )
    expect(await world.site.pods()).toHaveLength(1)
  })

  test('every step that fails after its effect is repeated; in the end nothing is left', async () => {
    const { wrap, crashed } = crashingOnce()
    world.replica({ wrap })
    const id = await world.insert({ ports: [{ port: 80 }] })
    const until = (phase: string | undefined) => world.untilPhase(id, phase)
    await until('Started')
    expect(await world.site.pods()).toHaveLength(1)
    expect(await world.left()).toHaveLength(3)
    await world.write(id, { state: 'Restarting' })
    await world.until(async () =>
      expect(await world.document(id)).toMatchObject({ phase: 'Started', state: 'Running' }),
    )
    await world.write(id, { state: 'Stopped' })
    await until('Stopped')
    await world.write(id, { state: 'Deleted' })
    await until(undefined)
    expect(await world.left()).toEqual([])
    expect(crashed).toHaveLength(4 + 4 + 1 + 2)
  })

  test('deleted before anything was made, and half-way', async () => {
    world.replica()
    const early = await world.insert({ state: 'Deleted', image: 'not an image' })
    await world.untilPhase(early, undefined)
    const id = await world.insert({ resources: NO_NODE, ports: [{ port: 80 }] })
    await world.untilWaiting(id, /Unschedulable/)
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, undefined)
    expect(await world.left()).toEqual([])
  })

  test('one whose gateway is gone deletes itself', async () => {
    world.replica({ isOrphan: async ({ gateway }) => gateway === 'gone' })
    const id = await world.insert({ gateway: 'gone' })
    await world.untilPhase(id, undefined)
    expect(await world.left()).toEqual([])
  })
})
