import { createHash } from 'node:crypto'
import type { GatewaySettings, KindRef, KubernetesObject, ObjectRef, Owner } from '../../kubernetes/index.js'
import { objectNameFor } from '../kit/index.js'
import type { BackendService, Placement } from './documents.js'

export const CERTIFICATE = { apiVersion: 'cert-manager.io/v1', kind: 'Certificate' } as const
export const INGRESS = { apiVersion: 'networking.k8s.io/v1', kind: 'Ingress' } as const
const SECRET = { apiVersion: 'v1', kind: 'Secret' } as const
const ISSUER_GROUP = 'cert-manager.io'
const HASH_LENGTH = 8
/** cert-manager's default, RSA with 2,048 bits, costs it some 100 ms of CPU per key: 22 s in a row for 200 domains. */
const PRIVATE_KEY = { algorithm: 'ECDSA', size: 256 } as const

type Issuer = NonNullable<GatewaySettings['tls']['issuer']>

/** The name of a domain's Ingress: the same whatever its host name. */
export const ingressNameFor = (id: unknown): string => objectNameFor('domain-', id, HASH_LENGTH + 1)

/** The name of a host's Certificate. Each host name has its own, so that the old one serves until the new one exists. */
export function certificateNameFor(id: unknown, host: string): string {
  return `${ingressNameFor(id)}-${createHash('sha256').update(host).digest('hex').slice(0, HASH_LENGTH)}`
}

/** True if the region's wildcard certificate covers this host: the wildcard stands for exactly one label. */
const isUnderWildcard = (host: string, { domain }: Pick<GatewaySettings, 'domain'>): boolean =>
  host.endsWith(`.${domain}`) && !host.slice(0, -domain.length - 1).includes('.')

/** True for a custom domain, which has a certificate of its own, if the region has TLS. */
export const needsCertificate = (host: string, gateway: GatewaySettings): boolean =>
  gateway.tls.enabled && !isUnderWildcard(host, gateway)

const refTo = (kind: KindRef, { namespace }: Placement, name: string): ObjectRef => ({
  ...kind,
  metadata: { name, namespace },
})
export const ingressRef = (placed: Placement) => refTo(INGRESS, placed, placed.ingress)
export const certificateRef = (placed: Placement, name: string) => refTo(CERTIFICATE, placed, name)
export const secretRef = (placed: Placement, name: string) => refTo(SECRET, placed, name)

/**
 * The Certificate of a host. cert-manager keeps the Secret when its Certificate is deleted, so the Secret carries its owner's labels
 * and is removed with the domain.
 */
export function certificateOf(
  placed: Placement,
  {
    host,
    name,
    issuer,
    owner,
  }: { host: string; name: string; issuer: Issuer; owner: Pick<Owner, 'labels' | 'annotations'> },
): KubernetesObject {
  const spec = {
    secretName: name,
    dnsNames: [host],
    issuerRef: issuerRefOf(issuer),
    privateKey: PRIVATE_KEY,
    secretTemplate: { labels: owner.labels, annotations: owner.annotations },
  }
  return { ...certificateRef(placed, name), spec }
}

/** True if the Certificate requests this host from the region's issuer, even after the region's settings have changed. */
export function isUpToDate(certificate: KubernetesObject, host: string, issuer: Issuer): boolean {
  const spec = certificate['spec'] as { dnsNames?: string[]; issuerRef?: Partial<Required<Issuer>> } | undefined
  const { name, kind = 'Issuer', group = ISSUER_GROUP } = spec?.issuerRef ?? {}
  const wanted = issuerRefOf(issuer)
  const isIssuer = name === wanted.name && kind === wanted.kind && group === wanted.group
  return isIssuer && spec?.dnsNames?.length === 1 && spec.dnsNames[0] === host
}

export function ingressOf(
  placed: Placement,
  { host, service, gateway }: { host: string; service: BackendService; gateway: GatewaySettings },
): KubernetesObject {
  const { ingressClass, annotations, tls } = gateway
  const secretName = placed.certificate ?? (isUnderWildcard(host, gateway) ? tls.wildcardSecret : undefined)
  const hasTls = tls.enabled || placed.certificate !== null
  const backend = { service: { name: service.name, port: { number: service.port } } }
  const ref = ingressRef(placed)
  return {
    ...ref,
    metadata: { ...ref.metadata, annotations },
    spec: {
      ...(ingressClass !== undefined && { ingressClassName: ingressClass }),
      ...(hasTls && { tls: [{ hosts: [host], ...(secretName !== undefined && { secretName }) }] }),
      rules: [{ host, http: { paths: [{ path: '/', pathType: 'Prefix', backend }] } }],
    },
  }
}

const issuerRefOf = ({ name, kind, group = ISSUER_GROUP }: Issuer) => ({ name, kind, group })
