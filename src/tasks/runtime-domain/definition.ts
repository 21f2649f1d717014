import { type LifecycleSettingsSpec, lifecycleOf } from '../../phases/index.js'
import type { Duration } from '../../time/index.js'
import { DOMAIN_COLLECTIONS, type RuntimeDomain } from './documents.js'

/** Settings of the runtime-domain lifecycle, besides those of every lifecycle. */
export interface RuntimeDomainSettings extends Omit<LifecycleSettingsSpec, 'fields'> {
  /**
   * The interval at which a served domain is compared with the settings of its owner and its region, and corrected. A host name written without
   * `state: 'Updating'` is applied, and changes made by others in the cluster are undone. Default: never.
   */
  readonly resync?: Duration | undefined
}

/**
 * The lifecycle without its handlers.
 * Creating may go to Stopping if Stopped is wanted before it was served, and to Deleting if the gateway that created it is gone.
 * @throws InvalidLifecycle for unknown settings and those out of range
 */
export function runtimeDomainDefinition(given: RuntimeDomainSettings = {}) {
  const { resync, ...settings } = given
  return lifecycleOf<RuntimeDomain>().define({
    name: 'runtime-domain',
    collection: DOMAIN_COLLECTIONS.runtimeDomain,
    phases: {
      Creating: { next: ['Created', 'Stopping', 'Deleting'] },
      Created: resync ? { rest: true, deadline: { after: resync, moveTo: 'Updating' } } : { rest: true },
      Updating: { next: ['Created', 'Stopping', 'Deleting'] },
      Stopping: { next: ['Stopped'] },
      Stopped: { rest: true },
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true },
    },
    rules: [
      { when: 'Running', from: ['Stopped'], moveTo: 'Creating' },
      // Even one that is being created, waits for a certificate that never comes, or is parked: it starts over with the current settings.
      { when: 'Updating', from: ['Creating', 'Created', 'Updating'], moveTo: 'Updating', setState: 'Running' },
      // A stopped one stays stopped; its next start applies the settings of that time.
      { when: 'Updating', from: ['Stopped'], moveTo: 'Stopped', setState: 'Stopped' },
      { when: 'Stopped', from: ['Created', 'Updating'], moveTo: 'Stopping' },
      { when: 'Deleted', from: 'any', moveTo: 'Deleting' },
    ],
    ...settings,
  })
}
