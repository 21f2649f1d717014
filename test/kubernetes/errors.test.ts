import { createServer } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net'
import { inspect } from 'node:util'
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import {
  AdmissionDenied,
  Cluster,
  InvalidResource,
  KubernetesForbidden,
  type KubernetesObject,
  NamespaceMissing,
  NamespaceTerminating,
  QuotaExceeded,
  UnknownKind,
} from '../../src/kubernetes/index.js'
import { Unavailable } from '../../src/phases/index.js'
import type { Duration } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { holdThing } from './support/holds.js'
import { describeWithCluster } from './support/index.js'
import { untilMayGet } from './support/rights.js'

const mapIn = (namespace: string, name = 'a'): KubernetesObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace },
})

async function thrownBy(work: Promise<unknown>): Promise<unknown> {
  const nothing = Symbol('nothing')
  const error = await work.then(
    () => nothing,
    (error: unknown) => error,
  )
  if (error === nothing) throw new Error('expected it to throw, it did not')
  return error
}

describeWithCluster('what a cluster refuses', (kubernetes) => {
  const database = useDatabase()
  let cluster: Cluster
  beforeAll(() => {
    cluster = Cluster.of({ name: 'eu-1', kubeconfig: kubernetes().kubeconfigText })
  })
  afterAll(() => cluster.close())
  const held = (at = cluster) => holdThing({ cluster: at, db: database.db }, 'a')

  test('a right that is missing: which verb on which resource in which namespace', async () => {
    const namespace = await kubernetes().namespace('errors')
    const rules = [{ apiGroups: [''], resources: ['configmaps'], verbs: ['get', 'patch'] }]
    const account = await kubernetes().serviceAccount(rules, { namespaces: [namespace] })
    await untilMayGet(account, mapIn(namespace))
    const { kubeconfigText } = account
    const narrow = Cluster.of({ name: 'eu-1', kubeconfig: kubeconfigText })
    const creating = await thrownBy((await held(narrow)).ensure(mapIn(namespace)))
    expect(creating).toBeInstanceOf(KubernetesForbidden)
    expect((creating as Error).message).toMatch(
      `the right to create configmaps in namespace ${namespace} of cluster eu-1`,
    )
    const certificate = { apiVersion: 'cert-manager.io/v1', kind: 'Certificate', metadata: { name: 'a', namespace } }
    const reading = await thrownBy((await held(narrow)).get(certificate))
    expect((reading as Error).message).toMatch(
      `the right to get certificates.cert-manager.io in namespace ${namespace}`,
    )
    const listing = await thrownBy(narrow.list({ apiVersion: 'apps/v1', kind: 'Deployment' }))
    expect((listing as Error).message).toMatch('the right to list deployments.apps in the whole cluster')
    narrow.close()
  })

  test('a quota', async () => {
    const namespace = await kubernetes().namespace('errors')
    const quota = { apiVersion: 'v1', kind: 'ResourceQuota', metadata: { name: 'few', namespace } }
    await kubernetes().make({ ...quota, spec: { hard: { 'count/secrets': '0' } } })
    const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'a', namespace } }
    await kubernetes().untilRefused(secret, 'exceeded quota')
    const error = await thrownBy((await held()).ensure(secret))
    expect(error).toBeInstanceOf(QuotaExceeded)
    expect((error as Error).message).toMatch('exceeded quota: few, requested: count/secrets=1, used: count/secrets=0')
  })

  test.each([
    ['a value', { replicas: -1 }, 'spec.replicas: Invalid value: -1'],
    ['an unknown field', { replica: 1 }, 'spec.replica'],
    ['a type', { replicas: 'many' }, 'spec.replicas'],
  ])('%s that is invalid', async (_what, wrong, says) => {
    const metadata = { labels: { app: 'a' } }
    const template = { metadata, spec: { containers: [{ name: 'a', image: 'a' }] } }
    const spec = { selector: { matchLabels: metadata.labels }, template, ...wrong }
    const deployment = { ...mapIn('default'), apiVersion: 'apps/v1', kind: 'Deployment', spec }
    const error = await thrownBy((await held()).ensure(deployment))
    expect(error).toBeInstanceOf(InvalidResource)
    expect((error as Error).message).toContain(says)
  })

  test('a reference without a namespace', async () => {
    const error = await thrownBy((await held()).ensure({ ...mapIn(''), metadata: { name: 'a' } }))
    expect(error).toBeInstanceOf(InvalidResource)
    expect((error as Error).message).toBe('expected ConfigMap a to have a metadata.namespace, got none')
  })

  test('a namespace that is not there, or is being deleted', async () => {
    expect(await thrownBy((await held()).ensure(mapIn('nowhere')))).toBeInstanceOf(NamespaceMissing)
    expect(await (await held()).remove(mapIn('nowhere'))).toMatchObject({ done: true })
    const namespace = await kubernetes().namespace('errors')
    const keeper = await kubernetes().make({
      ...mapIn(namespace, 'keeper'),
      metadata: { name: 'keeper', namespace, finalizers: ['example.com/hold'] },
    })
    await kubernetes().admin.delete({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } })
    expect(await thrownBy((await held()).ensure(mapIn(namespace)))).toBeInstanceOf(NamespaceTerminating)
    const body = [{ op: 'remove', path: '/metadata/finalizers' }]
    const http = { method: 'PATCH', body, contentType: 'application/json-patch+json' } as const
    await cluster.answerTo({ verb: 'patch', kind: keeper as KubernetesObject, namespace, object: 'keeper', http })
  })

  test("a policy of the cluster, with the policy's words", async () => {
    const namespace = await kubernetes().namespace('errors')
    const group = { apiVersion: 'admissionregistration.k8s.io/v1' }
    const metadata = { name: namespace }
    const resourceRules = [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['configmaps'] }]
    const namespaceSelector = { matchLabels: { 'kubernetes.io/metadata.name': namespace } }
    await kubernetes().make({
      ...{ ...group, kind: 'ValidatingAdmissionPolicy', metadata },
      spec: {
        matchConstraints: { resourceRules, namespaceSelector },
        validations: [{ expression: 'false', message: 'no more of these', reason: 'Forbidden' }],
      },
    })
    await kubernetes().make({
      ...{ ...group, kind: 'ValidatingAdmissionPolicyBinding', metadata },
      spec: { policyName: namespace, validationActions: ['Deny'] },
    })
    let n = 0
    const error = await eventually(
      async () => {
        n += 1
        return thrownBy((await held()).ensure(mapIn(namespace, `try-${n}`)))
      },
      { timeoutMs: 60_000 },
    )
    expect(error).toBeInstanceOf(AdmissionDenied)
    expect((error as Error).message).toMatch('no more of these')
  })

  test('a kind that it does not know', async () => {
    const error = await thrownBy(cluster.get({ ...mapIn('default'), apiVersion: 'example.com/v1', kind: 'Widget' }))
    expect(error).toBeInstanceOf(UnknownKind)
    expect((error as Error).message).toMatch("know the kind Widget of example.com/v1, which it doesn't")
  })

  test('credentials that it does not take: the cluster is unavailable', async () => {
    const config = JSON.parse(kubernetes().kubeconfigText)
    config.users[0].user = { token: 'wrong' }
    const error = await thrownBy(Cluster.of({ name: 'eu-1', kubeconfig: JSON.stringify(config) }).get(mapIn('default')))
    expect(error).toBeInstanceOf(Unavailable)
    expect((error as Error).message).toMatch(/^cluster eu-1 .*refuses the credentials.*401/)
  })
})

describe('a cluster that does not answer', () => {
  const servers: Server[] = []
  const sockets = new Set<Socket>()
  afterEach(async () => {
    for (const socket of sockets) socket.destroy()
    for (const server of servers.splice(0)) await new Promise((resolve) => server.close(resolve))
  })

  async function clusterAt(server: Server, requestTimeout: Duration = '10s'): Promise<Cluster> {
    servers.push(server)
    server.on('connection', (socket) => sockets.add(socket.on('error', () => undefined)))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return clusterOn((server.address() as AddressInfo).port, requestTimeout)
  }
  function clusterOn(port: number, requestTimeout: Duration): Cluster {
    const cluster = { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true }
    const config = {
      clusters: [{ name: 'c', cluster }],
      users: [{ name: 'u', user: {} }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'x',
    }
    return Cluster.of({ name: 'eu-1', kubeconfig: JSON.stringify(config), requestTimeout })
  }

  test.each([
    [429, '7', 7_000],
    [503, undefined, undefined],
  ])('answers %d: unavailable, for as long as it says', async (status, retryAfter, retryAfterMs) => {
    const server = createServer((_request, response) => {
      response.writeHead(status, retryAfter === undefined ? {} : { 'retry-after': retryAfter }).end('slow down')
    })
    const error = await thrownBy((await clusterAt(server)).get(mapIn('default')))
    expect(error).toBeInstanceOf(Unavailable)
    expect(error).toMatchObject({ retryAfterMs, message: expect.stringContaining(`${status}: slow down`) })
  })

  test('takes the request and says nothing, or half of an answer', async () => {
    const silent = await clusterAt(createTcpServer(), '150ms')
    const error = await thrownBy(silent.get(mapIn('default')))
    expect(error).toBeInstanceOf(Unavailable)
    expect((error as Error).message).toBe('cluster eu-1 could not be asked to get /api/v1: no answer within 150 ms')
    const half = await clusterAt(
      createServer((_request, response) => {
        response.writeHead(200).write('{"resources": [')
      }),
      '150ms',
    )
    expect(await thrownBy(half.get(mapIn('default')))).toBeInstanceOf(Unavailable)
  })

  const LIST = JSON.stringify({
    kind: 'APIResourceList',
    resources: [{ name: 'configmaps', kind: 'ConfigMap', namespaced: true }],
  })
  test.each([
    ['a page for every address', 200, () => '<html>sign in</html>'],
    ['nothing that it knows', 404, () => 'default backend - 404'],
    ['no entry', 403, () => '<html>Forbidden</html>'],
    ['that it expects another protocol', 400, () => 'Client sent an HTTP request to an HTTPS server.'],
    ['nothing that it knows, after it has answered', 404, (path: string) => (path === '/api/v1' ? LIST : 'not here')],
  ])('is something else, which answers %s: no object is gone for that, and nothing is refused', async (...given) => {
    const [, status, page] = given
    const cluster = await clusterAt(
      createServer(({ url = '' }, response) => {
        const body = page(url)
        response.writeHead(body === LIST ? 200 : status).end(body)
      }),
    )
    const error = await thrownBy(cluster.get(mapIn('default')))
    expect(error).toBeInstanceOf(Unavailable)
    expect((error as Error).message).toMatch(`isn't an API server (${status}: ${page('')}`)
  })

  test('has a kubeconfig that is no YAML: its words are not quoted', async () => {
    const broken = 'users:\n- name: u\n  user:\n    token: TOP-SECRET\n   x: [\n'
    const error = await thrownBy(Cluster.of({ name: 'eu-1', kubeconfig: broken }).get(mapIn('default')))
    expect(error).toBeInstanceOf(Unavailable)
    expect((error as Error).message).toMatch(
      "the kubeconfig isn't valid YAML: bad indentation of a mapping entry, line 5",
    )
    expect(inspect(error, { depth: 9 })).not.toMatch('TOP-SECRET')
  })

  test('is not there, or has a kubeconfig that says nothing', async () => {
    const server = createTcpServer()
    await clusterAt(server)
    const { port } = server.address() as AddressInfo
    await new Promise((resolve) => servers.pop()!.close(resolve))
    const error = await thrownBy(clusterOn(port, '10s').get(mapIn('default')))
    expect(error).toBeInstanceOf(Unavailable)
    expect((error as Error).message).toMatch('ECONNREFUSED')
    const wrong = Cluster.of({ name: 'eu-1', kubeconfig: '{}' })
    expect(await thrownBy(wrong.get(mapIn('default')))).toBeInstanceOf(Unavailable)
    const missing = Cluster.of({ name: 'eu-1', kubeconfig: { file: '/nowhere/kubeconfig' } })
    expect(((await thrownBy(missing.get(mapIn('default')))) as Error).message).toMatch('/nowhere/kubeconfig')
  })

  test('a step that is asked to stop waits no longer', async () => {
    const silent = await clusterAt(createTcpServer())
    const controller = new AbortController()
    const asked = thrownBy(silent.get(mapIn('default'), { signal: controller.signal }))
    controller.abort(new Error('the lease is in danger'))
    expect(await asked).toMatchObject({ message: 'the lease is in danger' })
  })
})
