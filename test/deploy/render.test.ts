import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals'
import { readSettings } from '../../src/config/index.js'
import { durationMs } from '../../src/time/index.js'
import {
  CHART,
  describeWithGo,
  helm,
  helmTemplate,
  KUSTOMIZE,
  kustomize,
  type Manifest,
  nameOf,
  START_TIMEOUT_MS,
  the,
} from './support/render.js'

jest.setTimeout(START_TIMEOUT_MS)

const values = (name: string) => ['-f', join(CHART, name)]
const VARIANTS = [
  { overlay: 'single', chart: [] as string[] },
  { overlay: 'ha', chart: values('values-ha.yaml') },
  { overlay: 'ha-keda', chart: [...values('values-ha.yaml'), ...values('values-ha-keda.yaml')] },
]

describeWithGo('kustomize and helm', () => {
  test.each(VARIANTS)('$overlay: the same objects from both', async ({ overlay, chart }) => {
    const [ours, theirs] = await Promise.all([kustomize(join(KUSTOMIZE, 'overlays', overlay)), helmTemplate(...chart)])
    expect(comparable(theirs)).toEqual(comparable(ours))
  })

  test('helm lint finds nothing, with any of the values', async () => {
    for (const { chart } of VARIANTS) {
      const { stdout } = await helm('lint', '--strict', CHART, ...chart)
      expect(stdout).toMatch(/1 chart\(s\) linted, 0 chart\(s\) failed/)
      expect(stdout).not.toMatch(/WARNING|ERROR/)
    }
  })

  test.each(VARIANTS)('$overlay: what the pods are told fits what phaselock start offers', async ({ overlay }) => {
    const objects = await kustomize(join(KUSTOMIZE, 'overlays', overlay))
    const pod = the('Deployment', objects)['spec'].template.spec
    const [container] = pod.containers
    const settings = objects.find(({ kind, metadata }) => kind === 'ConfigMap' && !/dashboard/.test(metadata.name))!
    const secret = the('Secret', objects)
    expect(container.envFrom).toEqual([{ configMapRef: { name: settings.metadata.name } }])
    const env: Record<string, string> = { ...settings['data'] }
    for (const { name, value, valueFrom } of container.env) {
      const { secretKeyRef, fieldRef } = valueFrom ?? {}
      if (value !== undefined) {
        env[name] = value
        continue
      }
      if (fieldRef) env[name] = fieldRef.fieldPath
      else if (secretKeyRef.key in secret['data']) env[name] = decoded(secret['data'][secretKeyRef.key])
      else expect(secretKeyRef).toMatchObject({ name: secret.metadata.name, optional: true })
    }
    const read = readSettings(env)
    expect(read).toMatchObject({
      log: 'json',
      lifecycles: '/app/kubernetes-tasks.mjs',
      name: 'metadata.name',
      uri: expect.stringMatching(/^mongodb:/),
    })
    expect(env).toMatchObject({ POD_NAMESPACE: 'metadata.namespace', POD_CONTAINER: container.name })
    // The supervisor of workers gives them 10 s beyond the grace.
    expect(pod.terminationGracePeriodSeconds * 1_000).toBeGreaterThanOrEqual(read.grace + durationMs('15s'))
    expect(container.ports).toEqual([{ name: 'http', containerPort: read.http }])
    expect(the('Service', objects)['spec'].ports).toEqual([{ name: 'http', port: read.http, targetPort: 'http' }])
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'])
      expect(container[probe].httpGet).toEqual({
        path: probe === 'readinessProbe' ? '/readyz' : '/livez',
        port: 'http',
      })
  })

  test('rights: in named namespaces, or none and no token', async () => {
    const none = await helmTemplate('--set', 'kubernetesTasks.rights=none')
    expect(none.filter(({ kind }) => /Role/.test(kind!))).toEqual([])
    expect(the('Deployment', none)['spec'].template.spec.automountServiceAccountToken).toBe(false)
    const ofBase = (await kustomize(join(KUSTOMIZE, 'base'))).find(({ kind }) => kind === 'ConfigMap')!['data']
    for (const data of [ofBase, the('ConfigMap', none)['data']])
      expect(data).toMatchObject({ PHASELOCK_LIFECYCLES: '/app/lifecycles.mjs' })
    const some = await helmTemplate('--set', 'kubernetesTasks.rights=namespaces,kubernetesTasks.namespaces={gw-a,gw-b}')
    const roles = some.filter(({ kind }) => /Role/.test(kind!))
    expect(roles.filter(({ kind }) => /Cluster/.test(kind!))).toEqual([])
    expect(roles.map((role) => role.metadata.namespace)).toEqual(expect.arrayContaining(['gw-a', 'gw-b', 'phaselock']))
    const cluster = await helmTemplate()
    expect(the('Deployment', cluster)['spec'].template.spec.automountServiceAccountToken).toBe(true)
  })

  test('in a namespace of a region the rights are the same, from both', async () => {
    const everywhere = await kustomize(join(KUSTOMIZE, 'overlays/single'))
    const rules = everywhere.find(({ metadata }) => metadata.name === 'phaselock-tasks')!['rules']
    expect(the('Role', await kustomize(join(KUSTOMIZE, 'region-namespace')))['rules']).toEqual(rules)
    const chart = await helmTemplate('--set', 'kubernetesTasks.rights=namespaces,kubernetesTasks.namespaces={gw-a}')
    expect(chart.find(({ kind, metadata }) => kind === 'Role' && metadata.namespace === 'gw-a')!['rules']).toEqual(
      rules,
    )
  })

  test("a file of one's own in the pod: who may answer questions", async () => {
    const values = [
      'env[0].name=PHASELOCK_ANSWER_TOKENS,env[0].value=/answers/tokens',
      'volumes[0].name=answers,volumes[0].secret.secretName=answers',
      'volumeMounts[0].name=answers,volumeMounts[0].mountPath=/answers',
    ]
    const pod = the('Deployment', await helmTemplate('--set', values.join()))['spec'].template.spec
    expect(pod.volumes).toEqual([
      expect.objectContaining({ name: 'tmp' }),
      { name: 'answers', secret: { secretName: 'answers' } },
    ])
    const [{ env, volumeMounts }] = pod.containers
    expect(volumeMounts.at(-1)).toEqual({ name: 'answers', mountPath: '/answers' })
    expect(env).toContainEqual({ name: 'PHASELOCK_ANSWER_TOKENS', value: '/answers/tokens' })
  })

  test('values that nobody knows, and those that would not fit the probes, are refused', async () => {
    await expect(helmTemplate('--set', 'replica=3')).rejects.toThrow(/additional properties 'replica' not allowed/)
    await expect(helmTemplate('--set-string', 'settings.PHASELOCK_HTTP=1')).rejects.toThrow(/PHASELOCK_HTTP/)
    await expect(helmTemplate('--set', 'kubernetesTasks.rights=namespaces')).rejects.toThrow(/namespaces/)
  })

  describe('an overlay of the user', () => {
    let folder: string
    beforeEach(async () => {
      folder = await mkdtemp(join(process.env['PHASELOCK_TEST_FOLDER']!, 'overlay-'))
    })
    afterEach(() => rm(folder, { recursive: true, force: true }))

    test('docs/operations.md: its own image, secret, settings and namespace', async () => {
      const page = await readFile(join(KUSTOMIZE, '../../docs/operations.md'), 'utf8')
      const [, yaml] = /```yaml\n(# kustomization\.yaml\n[\s\S]*?)```/.exec(page) ?? []
      const here = relative(folder, join(KUSTOMIZE, 'overlays/ha'))
      await writeFile(
        join(folder, 'kustomization.yaml'),
        yaml!.replace('./phaselock/deploy/kustomize/overlays/ha', here),
      )
      await writeFile(join(folder, 'secret.env'), 'MONGODB_URI=mongodb://db:27017/shop\n')
      const objects = await kustomize(folder)
      expect(new Set(objects.map(({ metadata }) => metadata.namespace).filter(Boolean))).toEqual(new Set(['shop']))
      const [container] = the('Deployment', objects)['spec'].template.spec.containers
      expect(container.image).toBe('registry.example/shop-lifecycles:7')
      const settings = objects.find(({ kind, metadata }) => kind === 'ConfigMap' && !/dashboard/.test(metadata.name))!
      expect(settings['data']).toMatchObject({ PHASELOCK_HTTP: '9400', PHASELOCK_WORKERS: '2' })
      expect(container.envFrom[0].configMapRef.name).toBe(settings.metadata.name)
      expect(decoded(the('Secret', objects)['data']['MONGODB_URI'])).toBe('mongodb://db:27017/shop')
    })
  })
})

const decoded = (base64: string) => Buffer.from(base64, 'base64').toString()

/**
 * Objects by kind and name, without what each tool marks its own with: kustomize's hashes in names, helm's labels and its checksum
 * of the settings. Of comments and the order of keys nothing is left after parsing.
 */
function comparable(objects: readonly Manifest[]): Record<string, unknown> {
  const hashed = objects
    .filter(({ kind }) => kind === 'ConfigMap' || kind === 'Secret')
    .map(({ metadata }) => /^(.+)-[2-9bcdfghkmt]{10}$/.exec(metadata.name))
    .filter((match) => match !== null)
  const plain = (text: string) => hashed.reduce((left, [name, bare]) => left.replaceAll(`"${name}"`, `"${bare}"`), text)
  const entries = objects.map((object): [string, unknown] => {
    const bare: Manifest = JSON.parse(plain(JSON.stringify(object)))
    for (const label of ['helm.sh/chart', 'app.kubernetes.io/managed-by', 'app.kubernetes.io/version'])
      delete bare.metadata.labels?.[label]
    delete bare['spec']?.template?.metadata?.annotations?.['checksum/settings']
    return [nameOf(bare), bare]
  })
  return Object.fromEntries(entries)
}
