import { withFormerFields } from '../../options/index.js'
import { groupOf } from '../api/discovery.js'
import { type KubernetesObject, nameOf } from '../api/objects.js'
import { claim, conditionIs, custom, GENERAL, ingress, namespace, service } from './others.js'
import { conditionOf, type Missing, type Readiness, type ReadyOptions, type Rule } from './verdict.js'
import { daemonSet, deployment, job, pod, replicaSet, statefulSet } from './workloads.js'

export type { Readiness, ReadyOptions } from './verdict.js'

/** Rules by group and kind, without the version. */
const RULES: Readonly<Record<string, Rule>> = {
  'apps/Deployment': deployment,
  'apps/ReplicaSet': replicaSet,
  'apps/StatefulSet': statefulSet,
  'apps/DaemonSet': daemonSet,
  'batch/Job': job,
  '/Pod': pod,
  '/Service': service,
  '/PersistentVolumeClaim': claim,
  '/Namespace': namespace,
  'networking.k8s.io/Ingress': ingress,
  'apiextensions.k8s.io/CustomResourceDefinition': conditionIs('Established'),
}

/**
 * Judges an object as the server has it: workloads by their counts, a Job by its end, a Service by its address, a claim by its
 * volume, a custom kind by its condition Ready or Available. Kubernetes' own kinds that have none of these (ConfigMap,
 * Secret, Role) are ready when they exist. A status about an older spec doesn't count.
 */
export function readinessOf(object: KubernetesObject, options: ReadyOptions = {}): Readiness {
  const missing = missingOf(object, options)
  const says = (words: string) => `${nameOf(object)} ${words}`
  if (missing === undefined) return asReadiness({ done: true, text: says('is ready'), object })
  if (typeof missing === 'string') return asReadiness({ done: false, text: says(missing), object })
  return asReadiness({ done: false, text: says(missing.failed), failed: true, object })
}

/** A verdict whose former fields are refused. */
export const asReadiness = (verdict: Readiness): Readiness =>
  withFormerFields('ready', verdict, { ready: 'done', reason: 'text' })

function missingOf(object: KubernetesObject, options: ReadyOptions): Missing {
  if (object.metadata.deletionTimestamp !== undefined) return 'is being deleted'
  if (options.condition !== undefined) return conditionIs(options.condition)(object, options)
  const { apiVersion, kind } = object
  const group = groupOf(apiVersion)
  const rule = RULES[`${group}/${kind}`]
  if (rule) return rule(object, options)
  // Kubernetes' own groups have no dot, or this ending.
  const isBuiltIn = !group.includes('.') || group.endsWith('.k8s.io')
  const saysSo = GENERAL.some((type) => conditionOf(object, type) !== undefined)
  return isBuiltIn && !saysSo ? undefined : custom(object, options)
}
