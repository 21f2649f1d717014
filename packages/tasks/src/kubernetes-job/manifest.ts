import type { KubernetesObject } from 'phaselock/kubernetes'
import { type PodSecurity, podTemplate } from '../pods/index.js'
import type { JobSpec } from './check-job.js'

export const JOB = { apiVersion: 'batch/v1', kind: 'Job' } as const
export const POD = { apiVersion: 'v1', kind: 'Pod' } as const
/** The label of a Job's pods, with the Job's name as the value. */
export const JOB_LABEL = 'phaselock.dev/job'
export const CONTAINER = 'job'

/** A Job that runs one pod at a time to its end. */
export function jobManifest(
  spec: JobSpec,
  { name, namespace, security }: { name: string; namespace: string; security: PodSecurity },
): KubernetesObject {
  const { backoffLimit, activeDeadlineSeconds, ttlSecondsAfterFinished } = spec
  return {
    ...JOB,
    metadata: { name, namespace },
    spec: {
      backoffLimit,
      ...(activeDeadlineSeconds !== undefined && { activeDeadlineSeconds }),
      ...(ttlSecondsAfterFinished !== undefined && { ttlSecondsAfterFinished }),
      // The next pod starts only once the last one has ended, not when it is asked to end: never two at the same time.
      podReplacementPolicy: 'Failed',
      // A pod that is evicted, or whose node is drained, has not failed itself.
      podFailurePolicy: {
        rules: [{ action: 'Ignore', onPodConditions: [{ type: 'DisruptionTarget', status: 'True' }] }],
      },
      template: podTemplate({
        container: spec,
        containerName: CONTAINER,
        labels: { [JOB_LABEL]: name },
        security,
        moreOfPod: { restartPolicy: 'Never' },
      }),
    },
  }
}
