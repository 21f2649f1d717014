import { type Duration, type LifecycleSettingsSpec, lifecycleOf } from 'phaselock'
import { JOB_COLLECTION, type KubernetesJob } from './documents.js'

/** Settings of the lifecycle, besides those of every lifecycle. */
export interface KubernetesJobSettings extends Omit<LifecycleSettingsSpec, 'fields'> {
  /** The time from a job's end until its document is deleted automatically. Default: never. */
  readonly keepEndedFor?: Duration | undefined
  /** The retention of a deleted job's document. Default 1h; '0s': removed immediately. */
  readonly keepFor?: Duration | undefined
}

/**
 * The lifecycle without its handlers: for Nest's decorators, and for programs that inspect documents and run no handlers.
 * @throws InvalidLifecycle for unknown settings and those out of range
 */
export function kubernetesJobDefinition(given: KubernetesJobSettings = {}) {
  const { keepEndedFor, keepFor = '1h', ...settings } = given
  const ended = keepEndedFor
    ? ({ rest: true, deadline: { after: keepEndedFor, moveTo: 'Deleting' } } as const)
    : ({ rest: true } as const)
  return lifecycleOf<KubernetesJob>().define({
    name: 'kubernetes-job',
    collection: JOB_COLLECTION,
    phases: {
      Creating: { next: ['Running'] },
      Running: { next: ['Succeeded', 'Failed'] },
      Succeeded: ended,
      Failed: ended,
      Cancelling: { next: ['Cancelled'] },
      Cancelled: ended,
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true, keepFor },
    },
    rules: [
      { when: 'Cancelled', from: ['Creating', 'Running'], moveTo: 'Cancelling' },
      // Creating: a parked one begins with the current settings.
      {
        when: 'Retrying',
        from: ['Creating', 'Succeeded', 'Failed', 'Cancelled'],
        moveTo: 'Creating',
        setState: 'Running',
      },
      { when: 'Deleted', from: 'any', moveTo: 'Deleting' },
    ],
    ...settings,
  })
}
