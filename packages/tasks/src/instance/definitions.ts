import { type Duration, type LifecycleSettingsSpec, lifecycleOf } from 'phaselock'
import { INSTANCE_COLLECTION, type Instance } from './documents.js'

/** Settings of the instance lifecycle, besides those of every lifecycle. */
export interface InstanceSettings extends Omit<LifecycleSettingsSpec, 'fields'> {
  /** The time limit of Starting; after it the instance is stopped again, with the reason. Default 5m. */
  readonly startTimeout?: Duration | undefined
  /**
   * The interval at which a started instance is compared with its Deployment, which is then corrected. Changes written without
   * `state: 'Updating'` are rolled out, and changes made by others in the cluster are undone. Default: never.
   */
  readonly resync?: Duration | undefined
  /** The retention of a deleted instance's document. Default 1h; '0s': removed immediately. */
  readonly keepFor?: Duration | undefined
}

/**
 * The instance lifecycle without its handlers: for Nest's decorators, and for programs that inspect documents and run no handlers.
 * @throws InvalidLifecycle for unknown settings and those out of range
 */
export function instanceDefinition(given: InstanceSettings = {}) {
  const { startTimeout = '5m', resync, keepFor = '1h', ...settings } = given
  return lifecycleOf<Instance>().define({
    name: 'instance',
    collection: INSTANCE_COLLECTION,
    phases: {
      Starting: {
        next: ['Started', 'Deleting'],
        entry: true,
        deadline: { after: startTimeout, moveTo: 'Stopping', setState: 'Stopped' },
      },
      Started: resync ? { rest: true, deadline: { after: resync, moveTo: 'Updating' } } : { rest: true },
      Updating: { next: ['Started'] },
      Restarting: { next: ['Started'] },
      Stopping: { next: ['Stopped'] },
      Stopped: { rest: true, entry: true },
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true, keepFor },
    },
    rules: [
      { when: 'Running', from: ['Stopped'], moveTo: 'Starting' },
      { when: 'Stopped', from: ['Starting', 'Started', 'Updating', 'Restarting'], moveTo: 'Stopping' },
      { when: 'Restarting', from: ['Started', 'Updating', 'Restarting'], moveTo: 'Restarting', setState: 'Running' },
      { when: 'Restarting', from: ['Starting', 'Stopped'], moveTo: 'Starting', setState: 'Running' },
      { when: 'Updating', from: ['Started', 'Updating', 'Restarting'], moveTo: 'Updating', setState: 'Running' },
      // A start that has failed or is parked starts over with the current settings; a stopped instance stays stopped.
      { when: 'Updating', from: ['Starting'], moveTo: 'Starting', setState: 'Running' },
      { when: 'Updating', from: ['Stopped'], moveTo: 'Stopped', setState: 'Stopped' },
      { when: 'Deleted', from: 'any', moveTo: 'Deleting' },
    ],
    ...settings,
  })
}
