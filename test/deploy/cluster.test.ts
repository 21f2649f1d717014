import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals'
import { describeWithCluster, type TestCluster } from '../kubernetes/support/index.js'
import { eventually } from '../support/database.js'
import { apply, defineKinds, inNamespace } from './support/apply.js'
import { CHART, helm, KUSTOMIZE, kustomize, type Manifest, nameOf, START_TIMEOUT_MS, the } from './support/render.js'

jest.setTimeout(START_TIMEOUT_MS)

const OVERLAYS = ['single', 'ha', 'ha-keda']

describeWithCluster('the manifests on a real API server', (cluster) => {
  /** Of the whole cluster: they don't go with their namespace. */
  const clusterWide: Manifest[] = []
  beforeAll(() => defineKinds(cluster()), START_TIMEOUT_MS)
  afterAll(async () => {
    for (const object of clusterWide) await cluster().admin.delete(object)
  })

  test.each(OVERLAYS)(
    '%s: the API server knows each object and takes it as it is written; applied again nothing changes',
    async (overlay) => {
      const { admin } = cluster()
      const namespace = await restricted(cluster())
      for (const object of inNamespace(namespace, await kustomize(join(KUSTOMIZE, 'overlays', overlay)))) {
        if (object.metadata.namespace === undefined) clusterWide.push(object)
        const first = await apply(admin, object)
        // What a schema doesn't know is dropped without a word, what it knows is kept as it was written.
        expect(first).toMatchObject(object as never)
        const second = await apply(admin, object)
        expect([nameOf(second), generation(second)]).toEqual([nameOf(first), generation(first)])
      }
    },
  )

  test('single: rolled out, to a second version with other settings, and back to the pods of the first', async () => {
    const { admin } = cluster()
    const namespace = await restricted(cluster())
    const objects = inNamespace(namespace, await kustomize(join(KUSTOMIZE, 'overlays/single')))
    const [settings, deployment] = [the('ConfigMap', objects), the('Deployment', objects)]
    for (const object of objects) if (object.metadata.namespace !== undefined) await apply(admin, object)
    const first = await rolledOut(cluster(), deployment)
    expect(first).toMatchObject({ replicas: 1, image: 'phaselock:0.1.0', settings: settings.metadata.name })

    const newSettings = structuredClone(settings)
    newSettings.metadata.name = 'phaselock-second'
    newSettings['data'].PHASELOCK_LOG_LEVEL = 'debug'
    const newer = structuredClone(deployment)
    const [container] = newer['spec'].template.spec.containers
    Object.assign(container, { image: 'phaselock:0.2.0', envFrom: [{ configMapRef: { name: 'phaselock-second' } }] })
    await apply(admin, newSettings)
    await apply(admin, newer)
    const second = await rolledOut(cluster(), newer)
    expect(second).toMatchObject({ replicas: 1, image: 'phaselock:0.2.0', settings: 'phaselock-second' })
    expect(second.template).not.toBe(first.template)

    await apply(admin, deployment)
    expect(await rolledOut(cluster(), deployment)).toEqual(first)
  })

  test('ha: the autoscaler keeps three of them, also while nobody serves its metric; a drain may take one', async () => {
    const { admin } = cluster()
    const namespace = await restricted(cluster())
    const objects = inNamespace(namespace, await kustomize(join(KUSTOMIZE, 'overlays/ha')))
    for (const object of objects) if (object.metadata.namespace !== undefined) await apply(admin, object)
    const deployment = the('Deployment', objects)
    await eventually(async () => expect(await rolledOut(cluster(), deployment)).toMatchObject({ replicas: 3 }), {
      timeoutMs: 400_000,
    })
    await eventually(async () => {
      const { status } = (await admin.read(the('PodDisruptionBudget', objects) as never)) as Manifest
      expect(status).toMatchObject({ currentHealthy: 3, desiredHealthy: 2, disruptionsAllowed: 1 })
    })
    // An apply of the same doesn't take the autoscaler's replicas back.
    await apply(admin, deployment)
    expect(await rolledOut(cluster(), deployment)).toMatchObject({ replicas: 3 })
  })

  describe('helm', () => {
    test('installs, upgrades, rolls back and leaves nothing', async () => {
      const namespace = await restricted(cluster())
      const name = `phaselock-${randomBytes(3).toString('hex')}`
      const on = ['--namespace', namespace, '--kubeconfig', cluster().kubeconfig]
      const deployment = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name, namespace } } as Manifest
      await helm('install', name, CHART, ...on, '--set', 'replicas=2', '--set', 'mongodb.uri=mongodb://db/shop')
      const first = await rolledOut(cluster(), deployment)
      expect(first).toMatchObject({ replicas: 2, image: 'phaselock:0.1.0', settings: name })
      const changed = ['image.tag=0.2.0', 'settings.PHASELOCK_LOG_LEVEL=debug']
      await helm('upgrade', name, CHART, ...on, '--reuse-values', ...changed.flatMap((set) => ['--set', set]))
      expect(await rolledOut(cluster(), deployment)).toMatchObject({ replicas: 2, image: 'phaselock:0.2.0' })
      await helm('rollback', name, '1', ...on)
      expect(await rolledOut(cluster(), deployment)).toEqual(first)
      await helm('uninstall', name, ...on)
      await expect(cluster().admin.read(deployment)).rejects.toMatchObject({ code: 404 })
    })
  })
})

/** A namespace that takes only pods that keep to the strictest of Kubernetes' own standards. */
async function restricted(cluster: TestCluster): Promise<string> {
  const namespace = await cluster.namespace('deploy')
  const labels = { 'pod-security.kubernetes.io/enforce': 'restricted' }
  const object = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace, labels } }
  await apply(cluster.admin, object as Manifest)
  return namespace
}

/** Of kinds that have no generation all but what controllers write meanwhile. */
const generation = ({ metadata, status: _status, ...rest }: Manifest) =>
  (metadata as { generation?: number }).generation ?? { ...rest, labels: metadata.labels }

interface RolledOut {
  readonly replicas: number
  readonly image: string
  readonly settings: string
  /** The hash of the template that all its pods have. */
  readonly template: string
}

/** Waits until all pods of a Deployment are of its present template and available, and no other is left. */
async function rolledOut(cluster: TestCluster, deployment: Manifest): Promise<RolledOut> {
  const { name, namespace } = deployment.metadata
  return eventually(
    async () => {
      const { metadata, spec, status } = (await cluster.admin.read(deployment)) as Manifest
      expect(status).toMatchObject({
        observedGeneration: (metadata as { generation?: number }).generation,
        replicas: spec.replicas,
        updatedReplicas: spec.replicas,
        availableReplicas: spec.replicas,
      })
      const pods = await cluster.admin.list(
        'v1',
        'Pod',
        namespace,
        undefined,
        undefined,
        undefined,
        undefined,
        `app.kubernetes.io/instance=${name}`,
      )
      const templates = new Set(pods.items.map((pod) => pod.metadata?.labels?.['pod-template-hash']))
      expect(pods.items).toHaveLength(spec.replicas)
      expect(templates.size).toBe(1)
      const [container] = spec.template.spec.containers
      const [template] = templates
      const settings = container.envFrom[0].configMapRef.name
      return { replicas: spec.replicas, image: container.image, settings, template: template! }
    },
    { timeoutMs: 200_000 },
  )
}
