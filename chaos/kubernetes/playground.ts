import { randomBytes } from 'node:crypto'
import type { KubernetesObject } from '@kubernetes/client-node'
import type { DemoCluster } from './demo-cluster.ts'

export interface Kind {
  readonly apiVersion: string
  readonly kind: string
  /** In paths of the API. */
  readonly plural: string
}

export const CERTIFICATE: Kind = { apiVersion: 'cert-manager.io/v1', kind: 'Certificate', plural: 'certificates' }
/** What the handlers make. */
export const MADE: readonly Kind[] = [
  CERTIFICATE,
  { apiVersion: 'networking.k8s.io/v1', kind: 'Ingress', plural: 'ingresses' },
  { apiVersion: 'apps/v1', kind: 'Deployment', plural: 'deployments' },
  { apiVersion: 'v1', kind: 'Service', plural: 'services' },
]
/** What controllers make from that. */
const FOLLOWING: readonly Kind[] = [
  { apiVersion: 'cert-manager.io/v1', kind: 'CertificateRequest', plural: 'certificaterequests' },
  { apiVersion: 'v1', kind: 'Secret', plural: 'secrets' },
  { apiVersion: 'apps/v1', kind: 'ReplicaSet', plural: 'replicasets' },
  { apiVersion: 'v1', kind: 'Pod', plural: 'pods' },
]

export const ISSUER = { name: 'self-signed', kind: 'Issuer' } as const

/** The demo's own namespaces: one for each owner of documents, with its own issuer of certificates or, for now, without one. */
export class Playground {
  private readonly prefix = `phaselock-demo-${randomBytes(4).toString('hex')}`
  private readonly namespaces = new Set<string>()

  private readonly cluster: DemoCluster

  constructor(cluster: DemoCluster) {
    this.cluster = cluster
  }

  /** The namespace of an owner's documents: a rule as regions have it. */
  get rule(): string {
    return this.namespaceOf('{gatewayId}')
  }

  /** Creates a namespace for an owner. */
  async admit(owner: string): Promise<void> {
    const name = this.namespaceOf(owner)
    await this.cluster.objects.create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
    this.namespaces.add(name)
  }

  /** From now on certificates are issued in the namespace of this owner. */
  async issueFor(owner: string): Promise<void> {
    const issuer = {
      apiVersion: 'cert-manager.io/v1',
      kind: ISSUER.kind,
      metadata: { name: ISSUER.name, namespace: this.namespaceOf(owner) },
      spec: { selfSigned: {} },
    }
    await this.cluster.objects.create(issuer as KubernetesObject)
  }

  /** What is left of everything that was made: `Ingress domain-1`. */
  async leftOver(): Promise<string[]> {
    const lists = [...MADE, ...FOLLOWING].map(async ({ apiVersion, kind }) => {
      const { items } = await this.cluster.objects.list(apiVersion, kind)
      const ours = items.filter(({ metadata }) => this.namespaces.has(metadata?.namespace ?? ''))
      return ours.map(({ metadata }) => `${kind} ${metadata?.name}`)
    })
    return (await Promise.all(lists)).flat()
  }

  /** Removes all of it, without waiting until it is gone. */
  async remove(): Promise<void> {
    const remove = (name: string) =>
      this.cluster.objects.delete({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
    await Promise.all([...this.namespaces].map(remove))
  }

  private namespaceOf(owner: string): string {
    return `${this.prefix}-${owner}`
  }
}
