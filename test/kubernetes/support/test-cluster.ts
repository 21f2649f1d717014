import { randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect } from '@jest/globals'
import {
  CoreV1Api,
  KubeConfig,
  type KubernetesObject,
  KubernetesObjectApi,
  PatchStrategy,
  type V1PolicyRule,
} from '@kubernetes/client-node'
import { eventually } from '../../support/database.js'

/** A service account that a test may act as. */
export interface TestAccount {
  readonly name: string
  readonly namespace: string
  /** As the API server calls it: in errors and in the audit log. */
  readonly user: string
  /** Its kubeconfig: the text, and the path of a file with it. */
  readonly kubeconfigText: string
  readonly kubeconfig: string
}

/** A line of the API server's audit log, as far as tests look at it. */
export interface AuditEvent {
  readonly verb: string
  readonly user: { readonly username: string }
  readonly objectRef?: {
    readonly resource: string
    readonly subresource?: string
    readonly apiGroup?: string
    readonly apiVersion: string
    readonly namespace?: string
    readonly name?: string
  }
  readonly responseStatus: { readonly code: number }
  readonly requestURI: string
  readonly stageTimestamp: string
}

type Made = KubernetesObject & { metadata: { name: string; namespace?: string } }

const RBAC = { apiGroup: 'rbac.authorization.k8s.io' }
const RBAC_VERSION = `${RBAC.apiGroup}/v1`
const TOKEN_SECONDS = 7_200

/**
 * A cluster as tests see it: the run's control plane, or the one that KUBECONFIG names. What tests make, they make in namespaces
 * from here; only these, and what else was made here, is removed by `release()`.
 */
export class TestCluster {
  private readonly made: Made[] = []
  private issuerName: Promise<string> | undefined

  private constructor(
    /** Path of the administrator's kubeconfig, and its text. */
    readonly kubeconfig: string,
    readonly kubeconfigText: string,
    /** Makes, reads and removes objects of any kind. */
    readonly admin: KubernetesObjectApi,
    private readonly config: KubeConfig,
    private readonly auditLog: string | undefined,
    private readonly folder: string,
  ) {}

  /** @param kubeconfig a file; unset: what KUBECONFIG says @param folder for files that go with the run */
  static async connect(at: { kubeconfig?: string; auditLog?: string; folder: string }): Promise<TestCluster> {
    const config = new KubeConfig()
    if (at.kubeconfig === undefined) config.loadFromDefault()
    else config.loadFromFile(at.kubeconfig)
    const text = config.exportConfig()
    const file = await fileWith(at.folder, 'kubeconfig', text)
    return new TestCluster(file, text, KubernetesObjectApi.makeApiClient(config), config, at.auditLog, at.folder)
  }

  /** Whether `auditEvents` can be asked for. */
  get isAudited(): boolean {
    return this.auditLog !== undefined
  }

  /** A new namespace in which pods can be made at once. */
  async namespace(name = 'test'): Promise<string> {
    const namespace = fresh(name)
    await this.make({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } })
    const account = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default', namespace } }
    await eventually(() => this.admin.read(account))
    return namespace
  }

  /** A self-signing ClusterIssuer, for a certificate's `issuerRef`. */
  async issuer(): Promise<{ name: string; kind: 'ClusterIssuer' }> {
    this.issuerName ??= this.makeIssuer()
    return { name: await this.issuerName, kind: 'ClusterIssuer' }
  }

  /** A service account with just these rights, in these namespaces; without namespaces in the whole cluster. */
  async serviceAccount(rules: V1PolicyRule[], { namespaces }: { namespaces?: string[] } = {}): Promise<TestAccount> {
    const namespace = await this.namespace('account')
    const name = `phaselock-${randomBytes(3).toString('hex')}`
    await this.make({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name, namespace } })
    for (const place of namespaces ?? [undefined]) await this.grant({ name, namespace }, rules, place)
    const { kubeconfig, kubeconfigText } = await this.kubeconfigOf(name, namespace)
    return { name, namespace, user: `system:serviceaccount:${namespace}:${name}`, kubeconfig, kubeconfigText }
  }

  /** More rights for a service account, in a namespace or, without one, in the whole cluster. */
  async grant(account: { name: string; namespace: string }, rules: V1PolicyRule[], place?: string): Promise<void> {
    const [role, binding] = place ? ['Role', 'RoleBinding'] : ['ClusterRole', 'ClusterRoleBinding']
    const metadata = { name: fresh(account.name), ...(place ? { namespace: place } : {}) }
    await this.make({ apiVersion: RBAC_VERSION, kind: role, metadata, rules })
    const roleRef = { ...RBAC, kind: role, name: metadata.name }
    const subjects = [{ kind: 'ServiceAccount', name: account.name, namespace: account.namespace }]
    await this.make({ apiVersion: RBAC_VERSION, kind: binding, metadata, roleRef, subjects })
    const [rule] = rules
    if (rule) await this.untilAllowed(`system:serviceaccount:${account.namespace}:${account.name}`, rule, place)
  }

  /** The API server learns of a right a moment after it was given: waits until the user has this one. */
  async untilAllowed(user: string, { apiGroups, resources, verbs }: V1PolicyRule, namespace?: string): Promise<void> {
    const [resource, subresource] = resources![0]!.split('/')
    const resourceAttributes = { namespace, verb: verbs[0], group: apiGroups![0], resource, subresource }
    const spec = { user, resourceAttributes }
    await eventually(async () => {
      const review = { apiVersion: 'authorization.k8s.io/v1', kind: 'SubjectAccessReview', spec }
      const { status } = (await this.admin.create(review as KubernetesObject)) as { status?: { allowed?: boolean } }
      return status?.allowed === true
    })
  }

  /** These and no others from now on; an object that is being deleted goes when it has none. */
  async setFinalizers({ apiVersion, kind, metadata }: KubernetesObject, finalizers: string[]): Promise<void> {
    const { name = '', namespace = '' } = metadata ?? {}
    const patch = { apiVersion, kind, metadata: { name, namespace, finalizers } }
    const type = PatchStrategy.MergePatch
    await this.admin.patch(patch as KubernetesObject, undefined, undefined, undefined, undefined, type)
  }

  /** A kubeconfig with a token of a service account that is there already. */
  async kubeconfigOf(name: string, namespace: string): Promise<{ kubeconfig: string; kubeconfigText: string }> {
    const spec = { audiences: [], expirationSeconds: TOKEN_SECONDS }
    const request = { name, namespace, body: { spec } }
    const { status } = await this.config.makeApiClient(CoreV1Api).createNamespacedServiceAccountToken(request)
    const config = new KubeConfig()
    const cluster = this.config.getCurrentCluster()
    if (!cluster || !status?.token) throw new Error('expected a current cluster and a token')
    config.loadFromClusterAndUser(cluster, { name, token: status.token })
    const text = config.exportConfig()
    return { kubeconfig: await fileWith(this.folder, name, text), kubeconfigText: text }
  }

  /** A client that acts as this account. */
  clientOf({ kubeconfigText }: TestAccount): KubernetesObjectApi {
    const config = new KubeConfig()
    config.loadFromString(kubeconfigText)
    return KubernetesObjectApi.makeApiClient(config)
  }

  /** What this account has asked for, refused requests too. Not for a cluster that KUBECONFIG names. */
  async auditEvents(account: { user: string }): Promise<AuditEvent[]> {
    if (!this.auditLog) throw new Error('expected a control plane of this run: only its audit log is known')
    const lines = (await readFile(this.auditLog, 'utf8')).split('\n')
    // The last line may not be there in full yet.
    const named = lines.slice(0, -1).filter((line) => line.includes(account.user))
    const events = named.map((line) => JSON.parse(line) as AuditEvent)
    return events.filter(({ user }) => user.username === account.user)
  }

  /** Creates an object; `release()` removes it. */
  async make<T extends object>(object: T): Promise<T> {
    const created = await this.admin.create(object as KubernetesObject)
    this.made.push(created as Made)
    return created as T
  }

  /**
   * Waits until the API server refuses to create this, with these words. It learns of a quota, and of the end of a namespace, a
   * moment after they are there for a reader. Nothing is made.
   */
  async untilRefused(object: object, words: string): Promise<void> {
    await eventually(() =>
      expect(this.admin.create(object as KubernetesObject, undefined, 'All')).rejects.toMatchObject({
        body: expect.stringContaining(words),
      }),
    )
  }

  /** Waits until a quota counts that lets no pod into the namespace. */
  async untilNoPodMayBeMade(namespace: string): Promise<void> {
    const spec = { containers: [{ name: 'a', image: 'a' }] }
    const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'one-too-many', namespace }, spec }
    await this.untilRefused(pod, 'exceeded quota')
  }

  /** Removes what was made here, without waiting until it is gone. */
  async release(): Promise<void> {
    for (const object of this.made.splice(0).reverse()) {
      await this.admin.delete(object).catch((error: { code?: number }) => {
        if (error.code !== 404 && error.code !== 409) throw error
      })
    }
  }

  private async makeIssuer(): Promise<string> {
    const name = fresh('self-signed')
    await this.make({
      apiVersion: 'cert-manager.io/v1',
      kind: 'ClusterIssuer',
      metadata: { name },
      spec: { selfSigned: {} },
    })
    return name
  }
}

const fresh = (name: string) => `${name}-${randomBytes(4).toString('hex')}`

async function fileWith(folder: string, name: string, text: string): Promise<string> {
  const path = join(folder, `${fresh(name)}.yaml`)
  await writeFile(path, text, { mode: 0o600 })
  return path
}
