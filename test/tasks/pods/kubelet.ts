import { createServer, type Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll } from '@jest/globals'
import type { KubernetesObject } from '../../../src/kubernetes/index.js'
import type { TestCluster } from '../../kubernetes/support/index.js'
import { eventually } from '../../support/database.js'
import type { TestSite } from './site.js'

/** How a container ended, and what it had written by then. */
export interface ContainerEnd {
  readonly exitCode: number
  readonly reason?: string
  readonly log: string
}

/**
 * A node whose kubelet is the test: the API server asks it for logs, as it does with any node, over HTTPS. pods are given to it by
 * the test only.
 */
export class TestKubelet {
  private readonly logs = new Map<string, string>()

  private constructor(
    private readonly server: Server,
    readonly node: string,
  ) {}

  static async start(cluster: TestCluster): Promise<TestKubelet> {
    const namespace = await cluster.namespace('kubelet')
    const { cert, key } = await certificate(cluster, namespace)
    const server = createServer({ cert, key })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    const kubelet = new TestKubelet(server, namespace)
    server.on('request', (request, response) => {
      const text = kubelet.answer(new URL(request.url ?? '', 'https://node'))
      response.writeHead(text === undefined ? 404 : 200, { 'content-type': 'text/plain' }).end(text)
    })
    await cluster.make({
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: kubelet.node },
      // Nobody else's pods, please.
      spec: { taints: [{ key: 'phaselock.test/kubelet', effect: 'NoSchedule' }] },
      status: {
        addresses: [
          { type: 'Hostname', address: '127.0.0.1' },
          { type: 'InternalIP', address: '127.0.0.1' },
        ],
        daemonEndpoints: { kubeletEndpoint: { Port: port } },
      },
    })
    return kubelet
  }

  /** Has the one container of a pod that has no node yet run here, to its end. */
  async end(site: TestSite, pod: KubernetesObject, { exitCode, reason, log }: ContainerEnd): Promise<void> {
    const { name, namespace } = pod.metadata
    this.logs.set(`${namespace}/${name}`, log)
    // The one phase in which kwok leaves a pod alone.
    await site.patch(pod, { status: { phase: 'Unknown' } }, 'status')
    const target = { apiVersion: 'v1', kind: 'Node', name: this.node }
    const body = { apiVersion: 'v1', kind: 'Binding', metadata: { name, namespace }, target }
    const http = { method: 'POST', body } as const
    await site.cluster.answerTo({ verb: 'create', kind: pod, namespace, object: name, subresource: 'binding', http })
    await endContainer(site, pod, { exitCode, ...(reason !== undefined && { reason }) })
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections()
    await new Promise((resolve) => this.server.close(resolve))
  }

  /** `/containerLogs/<namespace>/<pod>/<container>?tailLines=50&limitBytes=...`, as a kubelet has it. */
  private answer({ pathname, searchParams }: URL): string | undefined {
    const [, what, namespace, pod] = pathname.split('/')
    const log = what === 'containerLogs' ? this.logs.get(`${namespace}/${pod}`) : undefined
    if (log === undefined) return undefined
    const lines = log.split(/(?<=\n)/)
    const tail = lines.slice(-Number(searchParams.get('tailLines') ?? lines.length)).join('')
    return tail.slice(0, Number(searchParams.get('limitBytes') ?? tail.length))
  }
}

/** Says of a pod's one container what a kubelet says when it has ended. */
export async function endContainer(
  site: TestSite,
  pod: KubernetesObject,
  { exitCode, reason = exitCode === 0 ? 'Completed' : 'Error' }: { exitCode: number; reason?: string },
): Promise<void> {
  const { containers } = pod['spec'] as { containers: { name: string; image: string }[] }
  const [at, state] = ['2026-01-02T03:04:05Z', { exitCode, reason }]
  const containerStatuses = containers.map(({ name, image }) => ({
    ...{ name, image, imageID: '', ready: false, restartCount: 0 },
    state: { terminated: { ...state, startedAt: at, finishedAt: at } },
  }))
  await site.patch(pod, { status: { phase: exitCode === 0 ? 'Succeeded' : 'Failed', containerStatuses } }, 'status')
}

/** The API server doesn't check who signed a kubelet's certificate; cert-manager makes one. */
async function certificate(cluster: TestCluster, namespace: string): Promise<{ cert: Buffer; key: Buffer }> {
  const metadata = { name: 'kubelet', namespace }
  const spec = { secretName: 'kubelet', commonName: 'kubelet', issuerRef: await cluster.issuer() }
  await cluster.make({ apiVersion: 'cert-manager.io/v1', kind: 'Certificate', metadata, spec })
  return eventually(async () => {
    const { data } = (await cluster.admin.read({ apiVersion: 'v1', kind: 'Secret', metadata })) as {
      data?: Record<string, string>
    }
    const read = (file: string) => Buffer.from(data?.[file] ?? '', 'base64')
    const [cert, key] = [read('tls.crt'), read('tls.key')]
    if (cert.length === 0 || key.length === 0) throw new Error('expected a certificate and its key')
    return { cert, key }
  })
}

/** Gives the tests of a `describeWithCluster` a node of their own. */
export function useKubelet(cluster: () => TestCluster): () => TestKubelet {
  let kubelet: TestKubelet | undefined
  beforeAll(async () => {
    kubelet = await TestKubelet.start(cluster())
  })
  afterAll(() => kubelet?.stop())
  return () => {
    if (!kubelet) throw new Error('the kubelet exists inside tests and hooks only')
    return kubelet
  }
}
