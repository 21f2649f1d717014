import { type Duration, type LifecycleSettingsSpec, lifecycleOf } from 'phaselock'
import { JOB_COLLECTION, type KubernetesJob } from './documents.js'

/** Settings of the lifecycle, besides those of every lifecycle. */
export interface KubernetesJobSettings extends Omit<LifecycleSettingsSpec, 'fields'> {
  /** How long after its end a job's document is deleted by itself. Default: never. */
  readonly keepEndedFor?: Duration | undefined
  /** How long a deleted job's document is kept. Default 1h; '0s': removed at once. */
  readonly keepFor?: Duration | undefined
}

/**
 * The lifecycle without its handlers: for Nest's decorators, and for programs that look at documents and run none.
 * @throws InvalidLifecycle for unknown settings and those out of range
 */
export function kubernetesJobDefinition(given: KubernetesJobSettings = {}) {
  const { keepEndedFor, keepFor = '1h', ...settings } = given
  const ended = keepEndedFor
    ? ({ rest: true, deadline: { after: keepEndedFor, goTo: 'Deleting' } } as const)
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
      { when: 'Cancelled', from: ['Creating', 'Running'], goTo: 'Cancelling' },
      // Creating: a parked one begins with what is written now.
      {
        when: 'Retrying',
        from: ['Creating', 'Succeeded', 'Failed', 'Cancelled'],
        goTo: 'Creating',
        setState: 'Running',
      },
      { when: 'Deleted', from: 'any', goTo: 'Deleting' },
    ],
    ...settings,
  })
}
