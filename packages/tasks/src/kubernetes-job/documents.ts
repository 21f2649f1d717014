import type { ContainerFields, Place } from '../pods/index.js'

export const JOB_COLLECTION = 'KubernetesJob'

/** What a job's owner wants. Without a state it runs. `Retrying`: once more; it becomes `Running`. */
export type JobState = 'Running' | 'Cancelled' | 'Retrying' | 'Deleted'

/** What is to run, once, in a pod of its own. */
export interface JobFields extends ContainerFields {
  /** How long it may take in all, including the wait for a node. Default: forever. */
  readonly activeDeadlineSeconds?: number
  /** How often Kubernetes may start a new pod after one that failed. Default 0. A pod that its node took away doesn't count. */
  readonly backoffLimit?: number
  /**
   * When Kubernetes itself removes a Job that has ended. Default: never, as Phaselock does it once it has seen the end. With a
   * short one the result is lost when no replica runs for that long.
   */
  readonly ttlSecondsAfterFinished?: number
  /** How many of the last lines of its log are kept, 0 to 1000. Default 50. */
  readonly logLines?: number
}

/** How a Job ended. */
export interface JobResult {
  /** Of the last pod that ran; null if none is known, for example when the Job ran out of time. */
  readonly exitCode: number | null
  /** In words, for a Job that failed; null for one that succeeded. */
  readonly reason: string | null
  /** The last lines that its last pod wrote; null: there are none, or they could not be had (see `logError`). */
  readonly log: string | null
  readonly logError: string | null
  readonly pod: string | null
  /** By the cluster's clock. */
  readonly startedAt: Date | null
  readonly finishedAt: Date | null
  /** How many pods failed, the last one included. */
  readonly failedPods: number
}

/** Those of Phaselock's own fields that these handlers read. */
interface LifecycleFields {
  readonly phase?: string
  readonly lockedBy?: string
}

/** A program that runs to its end in a Kubernetes Job. A writer needs `{ phase: 'Creating', image }`. */
export interface KubernetesJob extends LifecycleFields, JobFields {
  readonly _id: unknown
  readonly state?: JobState
  /** The `_id` of its Region. */
  readonly region?: string
  /** What it belongs to; namespace rules use it. */
  readonly gatewayId?: unknown

  /** Set by Phaselock, before anything is made: where its Job is, and the Job's name. */
  readonly placed?: Place | null
  /** Set by Phaselock: 1 for the first run, one more for each `Retrying`. */
  readonly run?: number
  /** Set by Phaselock: what keeps its pod from running, in words; null when nothing does. */
  readonly trouble?: string | null
  /** Set by Phaselock when it has ended; null while it runs. */
  readonly result?: JobResult | null
}
