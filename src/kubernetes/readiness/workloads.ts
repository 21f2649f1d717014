import { numbered } from '../../options/index.js'
import type { KubernetesObject } from '../api/objects.js'
import { BEHIND, conditionOf, countOf, isBehind, type Missing, type Rule, specOf, statusOf, whyOf } from './verdict.js'

/** Every workload controller writes `observedGeneration`: without it, the controller hasn't seen the object yet. */
const onceSeen =
  (rule: (object: KubernetesObject) => Missing): Rule =>
  (object) =>
    isBehind(object, statusOf(object)['observedGeneration'] ?? Number.NEGATIVE_INFINITY) ? BEHIND : rule(object)

const ofAll = (count: number, all: number, what: string): string =>
  `has ${count} of ${numbered(all, 'replica')} ${what}`

/** Ready once every replica runs the latest spec and is available, and no older one is left. */
export const deployment = onceSeen((object) => {
  const status = statusOf(object)
  const wanted = countOf(specOf(object), 'replicas', 1)
  const failure = conditionOf(object, 'ReplicaFailure')
  const progressing = conditionOf(object, 'Progressing')
  const trouble =
    failure?.status === 'True' ? whyOf(failure) : progressing?.status === 'False' ? whyOf(progressing) : ''
  const updated = countOf(status, 'updatedReplicas')
  if (updated < wanted) return `${ofAll(updated, wanted, 'of its last version')}${trouble}`
  const available = Math.min(countOf(status, 'availableReplicas'), wanted - countOf(status, 'unavailableReplicas'))
  if (available < wanted) return `${ofAll(available, wanted, 'available')}${trouble}`
  const there = countOf(status, 'replicas')
  return there > wanted ? `still has ${numbered(there, 'replica')} instead of ${wanted}` : undefined
})

export const replicaSet = onceSeen((object) => {
  const wanted = countOf(specOf(object), 'replicas', 1)
  const available = countOf(statusOf(object), 'availableReplicas')
  if (available < wanted)
    return `${ofAll(available, wanted, 'available')}${whyOf(conditionOf(object, 'ReplicaFailure'))}`
  return undefined
})

export const statefulSet = onceSeen((object) => {
  const status = statusOf(object)
  const wanted = countOf(specOf(object), 'replicas', 1)
  const available = Math.min(countOf(status, 'readyReplicas'), countOf(status, 'availableReplicas'))
  if (available < wanted) return ofAll(available, wanted, 'available')
  const { type, rollingUpdate } = (specOf(object)['updateStrategy'] ?? {}) as {
    type?: string
    rollingUpdate?: { partition?: number }
  }
  // With OnDelete, or below the partition, old pods stay on purpose.
  const rolls = type !== 'OnDelete' && (rollingUpdate?.partition ?? 0) === 0
  if (rolls && status['updateRevision'] !== status['currentRevision']) {
    return ofAll(countOf(status, 'updatedReplicas'), wanted, 'of its last version')
  }
  const there = countOf(status, 'replicas')
  return there > wanted ? `still has ${numbered(there, 'replica')} instead of ${wanted}` : undefined
})

export const daemonSet = onceSeen((object) => {
  const status = statusOf(object)
  const wanted = countOf(status, 'desiredNumberScheduled')
  const updated = countOf(status, 'updatedNumberScheduled')
  const { type } = (specOf(object)['updateStrategy'] ?? {}) as { type?: string }
  if (type !== 'OnDelete' && updated < wanted) return `has ${updated} of ${wanted} pods of its last version`
  const available = countOf(status, 'numberAvailable')
  return available < wanted ? `has ${available} of ${wanted} pods available` : undefined
})

/** Ready once it has completed. */
export const job: Rule = (object) => {
  if (conditionOf(object, 'Complete')?.status === 'True') return undefined
  const failed = conditionOf(object, 'Failed')
  if (failed?.status === 'True') return { failed: `has failed${whyOf(failed)}` }
  const suspended = conditionOf(object, 'Suspended')
  if (suspended?.status === 'True') return `is suspended${whyOf(suspended)}`
  const status = statusOf(object)
  const active = countOf(status, 'active')
  const failures = countOf(status, 'failed')
  const after = failures > 0 ? `, after ${failures} failed` : ''
  return active > 0 ? `is running (${active} pods${after})` : `has not run yet${after}`
}

/** Ready once it is up, or has done its work. */
export const pod: Rule = (object): Missing => {
  const { phase, reason, message } = statusOf(object) as { phase?: string; reason?: string; message?: string }
  if (phase === 'Succeeded') return undefined
  if (phase === 'Failed')
    return { failed: `has failed${whyOf({ ...(reason && { reason }), ...(message && { message }) })}` }
  const ready = conditionOf(object, 'Ready')
  if (phase === 'Running' && ready?.status === 'True') return undefined
  const scheduled = conditionOf(object, 'PodScheduled')
  const why = scheduled?.status === 'False' ? scheduled : ready
  return `is ${phase ?? 'Pending'}${whyOf(why)}`
}
