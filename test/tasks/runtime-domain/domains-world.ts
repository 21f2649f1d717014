import { afterEach, expect } from '@jest/globals'
import { type Document, ObjectId } from 'mongodb'
import type { Replica, ReplicaOptions } from '../../../src/index.js'
import { Cluster, type KubernetesObject, type RegionSource, singleRegion } from '../../../src/kubernetes/index.js'
import { type RuntimeDomainOptions, runtimeDomainLifecycles } from '../../../src/tasks/index.js'
import type { TestCluster } from '../../kubernetes/support/index.js'
import { useDatabase } from '../../support/database.js'
import { TaskWorld } from '../../support/task-world.js'

type Settings = Parameters<typeof singleRegion>[2]
export type Domain = Document & { _id: ObjectId }

export const CERTIFICATE = { apiVersion: 'cert-manager.io/v1', kind: 'Certificate' }
export const INGRESS = { apiVersion: 'networking.k8s.io/v1', kind: 'Ingress' }
export const SECRET = { apiVersion: 'v1', kind: 'Secret' }
const SERVICE = { name: 'web', port: 80 }

/** Domains in one namespace of a real cluster, and replicas that tests make. */
export class DomainsWorld extends TaskWorld {
  namespace = ''
  private clusters: Cluster[] = []

  constructor(private readonly testCluster: () => TestCluster) {
    super()
  }

  get domains() {
    return this.db.collection<Domain>('RuntimeDomain')
  }

  get cluster(): Cluster {
    return this.clusters[0]!
  }

  async begin(): Promise<void> {
    this.namespace = await this.testCluster().namespace('domains')
    this.clusters.push(Cluster.of({ name: 'eu', kubeconfig: this.testCluster().kubeconfigText }))
  }

  /** The region 'eu': domains below `eu.example`, TLS by the cluster's self-signing issuer. */
  async region(gateway: Partial<Settings['gateway']> = {}, cluster = this.cluster): Promise<RegionSource> {
    const tls = { enabled: true, issuer: await this.testCluster().issuer(), wildcardSecret: 'wildcard' }
    return singleRegion('eu', cluster, {
      namespace: this.namespace,
      gateway: { domain: 'eu.example', ingressClass: 'web', tls, ...gateway },
    })
  }

  replica(regions: RegionSource, more: Partial<ReplicaOptions & RuntimeDomainOptions> = {}): Replica {
    const { wrap, resync, ...options } = more
    const { all } = runtimeDomainLifecycles({ db: this.db, regions, ...(wrap && { wrap }), ...(resync && { resync }) })
    return this.run(all, options)
  }

  async insert(fields: Document): Promise<ObjectId> {
    const { insertedId } = await this.domains.insertOne({
      _id: new ObjectId(),
      phase: 'Creating',
      service: SERVICE,
      ...fields,
    } as unknown as Domain)
    return insertedId
  }

  /** What an owner does: one plain write. */
  async write(_id: ObjectId, fields: Document): Promise<void> {
    await this.domains.updateOne({ _id }, { $set: fields })
  }

  async domain(_id: ObjectId): Promise<Document> {
    return (await this.domains.findOne({ _id })) ?? {}
  }

  /** In a phase, and not about to leave it for its state. */
  untilPhase(id: ObjectId, phase: string, replicas = this.replicas): Promise<unknown> {
    return this.until(async () => {
      const { state, ...domain } = await this.domain(id)
      expect(domain).toMatchObject({ phase })
      expect(state).not.toBe('Updating')
    }, replicas)
  }

  async list(kind: { apiVersion: string; kind: string }): Promise<KubernetesObject[]> {
    const labels = 'phaselock.dev/lifecycle=runtime-domain'
    return this.cluster.list(kind, { namespace: this.namespace, labels })
  }

  /** Names of what is there of each kind. */
  async there(): Promise<{ ingresses: string[]; certificates: string[]; secrets: string[] }> {
    const names = async (kind: { apiVersion: string; kind: string }) =>
      (await this.list(kind)).map(({ metadata }) => metadata.name).sort()
    return { ingresses: await names(INGRESS), certificates: await names(CERTIFICATE), secrets: await names(SECRET) }
  }

  override async end(): Promise<void> {
    await super.end()
    for (const cluster of this.clusters.splice(0)) cluster.close()
  }
}

export const NOTHING = { ingresses: [], certificates: [], secrets: [] }

export function useDomains(cluster: () => TestCluster): DomainsWorld {
  const world = new DomainsWorld(cluster)
  afterEach(() => world.end())
  world.database = useDatabase()
  return world
}
