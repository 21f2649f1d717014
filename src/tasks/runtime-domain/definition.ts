import { type LifecycleSettingsSpec, lifecycleOf } from '../../phases/index.js'
import type { Duration } from '../../time/index.js'
import { DOMAIN_COLLECTIONS, type RuntimeDomain } from './documents.js'

/** Settings of the runtime-domain lifecycle, besides those of every lifecycle. */
export interface RuntimeDomainSettings extends Omit<LifecycleSettingsSpec, 'fields'> {
  /**
   * How often a served domain is compared with what its owner and its region want, and corrected: a host name written without
   * `state: 'Updating'` is applied, and what others have changed in the cluster is undone. Default: never.
   */
  readonly resync?: Duration | undefined
}

/**
 * The lifecycle without its handlers.
 * Creating may go to Stopping when Stopped is wanted before it was served, and to Deleting when the gateway that made it is gone.
 * @throws InvalidLifecycle for unknown settings and those out of range
 */
export function runtimeDomainDefinition(given: RuntimeDomainSettings = {}) {
  const { resync, ...settings } = given
  return lifecycleOf<RuntimeDomain>().define({
    name: 'runtime-domain',
    collection: DOMAIN_COLLECTIONS.runtimeDomain,
    phases: {
      Creating: { next: ['Created', 'Stopping', 'Deleting'] },
      Created: resync ? { rest: true, deadline: { after: resync, goTo: 'Updating' } } : { rest: true },
      Updating: { next: ['Created', 'Stopping', 'Deleting'] },
      Stopping: { next: ['Stopped'] },
      Stopped: { rest: true },
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true },
    },
    rules: [
      { when: 'Running', from: ['Stopped'], goTo: 'Creating' },
      // Even one that is being made, waits for a certificate that never comes, or is parked: it starts again with what is wanted now.
      { when: 'Updating', from: ['Creating', 'Created', 'Updating'], goTo: 'Updating', setState: 'Running' },
      // A stopped one stays stopped; its next start applies what is wanted then.
      { when: 'Updating', from: ['Stopped'], goTo: 'Stopped', setState: 'Stopped' },
      { when: 'Stopped', from: ['Created', 'Updating'], goTo: 'Stopping' },
      { when: 'Deleted', from: 'any', goTo: 'Deleting' },
    ],
    ...settings,
  })
}
