import type { KubernetesObject } from 'phaselock/kubernetes'

/** The parts of a Job's status that are read here. */
export interface JobStatus {
  readonly active?: number
  readonly ready?: number
  readonly failed?: number
  readonly startTime?: string
  readonly completionTime?: string
  readonly conditions?: readonly JobCondition[]
}

export interface JobCondition {
  readonly type: string
  readonly status: string
  readonly reason?: string
  readonly message?: string
  readonly lastTransitionTime?: string
}

export const statusOf = (job: KubernetesObject): JobStatus => (job['status'] as JobStatus | undefined) ?? {}

/** The end of a Job, by its own conditions; undefined: it hasn't ended, or its pods are still being removed. */
export function endOf(
  job: KubernetesObject,
): { readonly succeeded: boolean; readonly condition: JobCondition } | undefined {
  const conditions = statusOf(job).conditions ?? []
  const condition = conditions.find(
    ({ type, status }) => (type === 'Complete' || type === 'Failed') && status === 'True',
  )
  return condition && { succeeded: condition.type === 'Complete', condition }
}
