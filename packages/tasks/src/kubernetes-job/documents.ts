import type { ContainerFields, Place } from '../pods/index.js'

export const JOB_COLLECTION = 'KubernetesJob'

/** The state that a job's owner wants. Without a state it runs. `Retrying`: once more; it becomes `Running`. */
export type JobState = 'Running' | 'Cancelled' | 'Retrying' | 'Deleted'

/** The program to run, once, in a pod of its own. */
export interface JobFields extends ContainerFields {
  /** The time limit in total, including the wait for a node. Default: none. */
  readonly activeDeadlineSeconds?: number
  /** The number of new pods that Kubernetes may start after failed ones. Default 0. A pod that its node took away doesn't count. */
  readonly backoffLimit?: number
  /**
   * The time after which Kubernetes itself removes an ended Job. Default: never, because Phaselock removes it once it has seen the end. If it
   * is short, the result is lost when no replica runs for that long.
   */
  readonly ttlSecondsAfterFinished?: number
  /** The number of lines kept from the end of its log, 0 to 1000. Default 50. */
  readonly logLines?: number
}

/** The result of a Job. */
export interface JobResult {
  /** The exit code of the last pod that ran; null if none is known, for example if the Job ran out of time. */
  readonly exitCode: number | null
  /** The reason of a failure, in words; null for a Job that succeeded. */
  readonly reason: string | null
  /** The last lines that its last pod wrote; null: there are none, or they could not be read (see `logError`). */
  readonly log: string | null
  readonly logError: string | null
  readonly pod: string | null
  /** The start by the cluster's clock. */
  readonly startedAt: Date | null
  readonly finishedAt: Date | null
  /** The number of failed pods, including the last one. */
  readonly failedPods: number
}

/** Phaselock's own fields that these handlers read. */
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
  /** The gateway that it belongs to; namespace rules use it. */
  readonly gatewayId?: unknown

  /** Set by Phaselock, before any object is created: the place of its Job, and the Job's name. */
  readonly placed?: Place | null
  /** Set by Phaselock: 1 for the first run, one more for each `Retrying`. */
  readonly run?: number
  /** Set by Phaselock: the reason that keeps its pod from running, in words; null if there is no such reason. */
  readonly trouble?: string | null
  /** Set by Phaselock once it has ended; null while it runs. */
  readonly result?: JobResult | null
}
