import { createHash } from 'node:crypto'
import type { KubernetesObject } from 'phaselock/kubernetes'
import { objectNameFor } from 'phaselock/tasks'
import { type PodSecurity, podTemplate } from '../pods/index.js'
import type { InstanceSpec } from './check-instance.js'

/** The label of an instance's pods, with its name as the value; the Deployment and the Service select by it. */
export const INSTANCE_LABEL = 'phaselock.dev/instance'
/** The annotation of the pods that contains their {@link Manifests.podRevision}. */
export const REVISION_ANNOTATION = 'phaselock.dev/revision'
/** The annotation of the pods that changes with each restart. */
const RESTARTED_ANNOTATION = 'phaselock.dev/restarted'
/** The length of the suffix of a Deployment's pod names: `-5d59d67564-2xjkl`. */
const POD_ENDING = 17

export const DEPLOYMENT = { apiVersion: 'apps/v1', kind: 'Deployment' } as const
export const SERVICE = { apiVersion: 'v1', kind: 'Service' } as const
export const POD = { apiVersion: 'v1', kind: 'Pod' } as const

/** The objects in the cluster for an instance. */
export interface Manifests {
  readonly deployment: KubernetesObject
  /** Undefined: the instance has no ports. */
  readonly service: KubernetesObject | undefined
  /** A hash of both: a different one means that something has to be rolled out. */
  readonly revision: string
  /** A hash of the pods' template, which the pods carry: pods with another one are to be replaced. */
  readonly podRevision: string
}

/** The name of the Deployment and of the Service: `instance-<id>`, see `objectNameFor`. */
export const instanceNameFor = (id: unknown): string => objectNameFor('instance-', id, POD_ENDING)

interface About {
  readonly name: string
  readonly namespace: string
  readonly security: PodSecurity
  /** The fence of the last restart. */
  readonly restarted: number | undefined
}

/** The Deployment and the Service of an instance. The same spec gives the same objects, whatever the order of its fields. */
export function manifestsOf(spec: InstanceSpec, about: About): Manifests {
  const { name, namespace } = about
  const service = spec.ports.length === 0 ? undefined : serviceOf(spec, name, namespace)
  // Without the number of replicas: scaling doesn't replace pods.
  const podRevision = hashOf(templateOf(spec, about, undefined))
  const deploymentSpec = {
    replicas: spec.replicas,
    selector: { matchLabels: { [INSTANCE_LABEL]: name } },
    template: templateOf(spec, about, podRevision),
  }
  const deployment = { ...DEPLOYMENT, metadata: { name, namespace }, spec: deploymentSpec }
  return { deployment, service, revision: hashOf([deploymentSpec, service?.['spec'] ?? null]), podRevision }
}

/** A hash of any JSON, whatever the order of its keys. */
function hashOf(json: unknown): string {
  const sorted = (_key: string, value: unknown) =>
    isObject(value) ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value
  return createHash('sha256').update(JSON.stringify(json, sorted)).digest('hex').slice(0, 16)
}

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function serviceOf(spec: InstanceSpec, name: string, namespace: string): KubernetesObject {
  const ports = spec.ports.map(({ name, port, containerPort, protocol }) => {
    return { name, port, targetPort: containerPort, protocol }
  })
  return { ...SERVICE, metadata: { name, namespace }, spec: { selector: { [INSTANCE_LABEL]: name }, ports } }
}

function templateOf(spec: InstanceSpec, { name, security, restarted }: About, revision: string | undefined) {
  const { readiness } = spec
  return podTemplate({
    container: spec,
    containerName: 'instance',
    labels: { [INSTANCE_LABEL]: name },
    annotations: {
      ...(revision !== undefined && { [REVISION_ANNOTATION]: revision }),
      ...(restarted !== undefined && { [RESTARTED_ANNOTATION]: String(restarted) }),
    },
    security,
    // Without its ports, which are only informative: a change to the Service then doesn't replace pods.
    moreOfContainer: readiness ? { readinessProbe: probeOf(readiness) } : {},
  })
}

function probeOf({ port, path }: NonNullable<InstanceSpec['readiness']>) {
  return path === undefined ? { tcpSocket: { port } } : { httpGet: { path, port } }
}
