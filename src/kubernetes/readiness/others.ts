import type { KubernetesObject } from '../api/objects.js'
import { BEHIND, conditionOf, isBehind, type Missing, type Rule, specOf, statusOf, whyOf } from './verdict.js'

function hasAddress(object: KubernetesObject): boolean {
  const { loadBalancer } = statusOf(object) as {
    loadBalancer?: { ingress?: readonly { ip?: string; hostname?: string }[] }
  }
  return loadBalancer?.ingress?.some(({ ip, hostname }) => Boolean(ip ?? hostname)) === true
}

/** A Service of type LoadBalancer is ready once it has its address; any other is ready immediately. */
export const service: Rule = (object) =>
  specOf(object)['type'] === 'LoadBalancer' && !hasAddress(object) ? 'has no load balancer address yet' : undefined

/** An Ingress needs an address only on request: not every ingress controller reports one. */
export const ingress: Rule = (object, { address = false }) =>
  address && !hasAddress(object) ? 'has no address yet' : undefined

export const claim: Rule = (object): Missing => {
  const phase = statusOf(object)['phase']
  if (phase === 'Bound') return undefined
  if (phase === 'Lost') return { failed: 'has lost its volume' }
  return `is not Bound: it is ${String(phase ?? 'Pending')}`
}

export const namespace: Rule = (object) =>
  statusOf(object)['phase'] === 'Terminating' ? 'is being deleted' : undefined

/** Requires that the condition is True, and about the object's current spec. */
export function conditionIs(type: string): Rule {
  return (object) => {
    const condition = conditionOf(object, type)
    if (!condition) return `has no condition ${type} yet`
    if (isBehind(object) || isBehind(object, condition.observedGeneration)) return BEHIND
    return condition.status === 'True' ? undefined : `is not ${type}${whyOf(condition)}`
  }
}

/** Conditions that mean that an object is usable, for kinds without a rule of their own. */
export const GENERAL = ['Ready', 'Available'] as const

/** A custom kind, judged by Ready or Available as its controller reports it. */
export const custom: Rule = (object, options) => {
  const type = GENERAL.find((one) => conditionOf(object, one) !== undefined)
  return type ? conditionIs(type)(object, options) : `is not Ready yet: it has no condition ${GENERAL.join(' or ')}`
}
