import { afterAll, afterEach, beforeAll, beforeEach } from '@jest/globals'
import { Cluster, type KubernetesObject, type ObjectRef } from '../../../src/kubernetes/index.js'
import type { TestCluster } from '../../kubernetes/support/index.js'

const POD = { apiVersion: 'v1', kind: 'Pod' }

/** A namespace of one test, and what the test does in it besides Phaselock: as an administrator, a kubelet, a bystander. */
export class TestSite {
  private at: { cluster: Cluster; namespace: string } | undefined

  get cluster(): Cluster {
    return this.there.cluster
  }

  get namespace(): string {
    return this.there.namespace
  }

  async create(object: KubernetesObject): Promise<void> {
    const { namespace } = object.metadata
    await this.cluster.answerTo({ verb: 'create', kind: object, namespace, http: { method: 'POST', body: object } })
  }

  async delete(ref: ObjectRef): Promise<void> {
    const { name, namespace } = ref.metadata
    await this.cluster.answerTo({ verb: 'delete', kind: ref, namespace, object: name, http: { method: 'DELETE' } })
  }

  /** Merges this into an object, as anybody may; `status` as its controller or kubelet would. */
  async patch(ref: ObjectRef, body: object, subresource?: 'status'): Promise<void> {
    const { name, namespace } = ref.metadata
    const http = { method: 'PATCH', contentType: 'application/merge-patch+json', body } as const
    await this.cluster.answerTo({ verb: 'patch', kind: ref, namespace, object: name, subresource, http })
  }

  /** An object of this namespace. */
  ref(apiVersion: string, kind: string, name: string) {
    return { apiVersion, kind, metadata: { name, namespace: this.namespace } }
  }

  /** Those that aren't on their way out. */
  async pods(): Promise<KubernetesObject[]> {
    const pods = await this.cluster.list(POD, { namespace: this.namespace })
    return pods.filter(({ metadata }) => metadata.deletionTimestamp === undefined)
  }

  /** Kind and name of each pod and of what is there of these kinds. */
  async left(...kinds: { apiVersion: string; kind: string }[]): Promise<string[]> {
    const { namespace } = this
    const lists = await Promise.all([...kinds, POD].map((kind) => this.cluster.list(kind, { namespace })))
    return lists.flat().map(({ kind, metadata }) => `${kind} ${metadata.name}`)
  }

  enter(at: { cluster: Cluster; namespace: string }): void {
    this.at = at
  }

  private get there() {
    if (!this.at) throw new Error('the namespace exists inside tests and hooks only')
    return this.at
  }
}

/** Gives each test of a `describeWithCluster` a namespace of its own. */
export function useSite(testCluster: () => TestCluster): TestSite {
  const site = new TestSite()
  let cluster: Cluster | undefined
  beforeAll(() => {
    cluster = Cluster.of({ name: 'test', kubeconfig: testCluster().kubeconfigText })
  })
  beforeEach(async () => site.enter({ cluster: cluster!, namespace: await testCluster().namespace('pods') }))
  // Not only when all tests are over: what is left keeps the cluster's controllers busy.
  afterEach(() => site.delete({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: site.namespace } }))
  afterAll(() => cluster?.close())
  return site
}
