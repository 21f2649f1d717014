import { type Duration, type LimitSpec, lifecycleOf } from 'phaselock'
import { COLLECTIONS, type Repository, type RepositorySync } from './documents.js'

/** The settings of both lifecycles. */
export interface SyncLifecycleSettings {
  /** The time that a lease lasts without a renewal: the cost of a crash. Default 30s. */
  readonly lockTimeout?: Duration | undefined
  /** The limits that a sync needs while a replica works on it. Default: `embeddings` and `gitlab-api`, with 4 slots each. */
  readonly limits?: readonly LimitSpec[] | undefined
  /** The time that ended syncs are kept. Default 30d. */
  readonly keepFor?: Duration | undefined
}

const LIMITS: readonly LimitSpec[] = [
  { name: 'embeddings', slots: 4 },
  { name: 'gitlab-api', slots: 4 },
]

/** The lifecycle of repositories. */
export const repositoryDefinition = ({ lockTimeout = '30s' }: SyncLifecycleSettings = {}) =>
  lifecycleOf<Repository>().define({
    name: 'repository',
    collection: COLLECTIONS.repositories,
    phases: {
      Creating: { next: ['Created'] },
      Created: { rest: true },
      Updating: { next: ['Created'] },
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true, keepFor: '1h' },
    },
    rules: [
      // From Updating too: it may be parked there, and begins anew with what was changed.
      { when: 'Updating', from: ['Creating', 'Created', 'Updating'], moveTo: 'Updating', setState: 'Running' },
      { when: 'Deleted', from: 'any', moveTo: 'Deleting' },
    ],
    lockTimeout,
  })

/** The lifecycle of syncs. */
export const syncDefinition = ({ lockTimeout = '30s', limits = LIMITS, keepFor = '30d' }: SyncLifecycleSettings = {}) =>
  lifecycleOf<RepositorySync>().define({
    name: 'repository-sync',
    collection: COLLECTIONS.syncs,
    phases: {
      Listing: { next: ['Indexing', 'Checking', 'Failed'], entry: true },
      Indexing: { next: ['Removing', 'Listing', 'Failed'] },
      Removing: { next: ['Checking', 'Failed'] },
      Checking: { next: ['Listing', 'Completed', 'Failed'] },
      Cancelling: { next: ['Failed'] },
      Completed: { final: true, keepFor },
      Failed: { final: true, keepFor, failed: true },
    },
    rules: [{ when: 'Cancelled', from: ['Listing', 'Indexing', 'Removing', 'Checking'], moveTo: 'Cancelling' }],
    lockTimeout,
    limits,
    stepTimeout: '30m',
    // Lost replicas are counted by the sync itself: parked it would keep all later ones from beginning.
    maxClaims: 1_000,
    // A step a batch: 500 for 100,000 files.
    backOff: { afterSteps: 10_000 },
  })

/** The phases of an open sync. */
export const OPEN_PHASES = ['Listing', 'Indexing', 'Removing', 'Checking', 'Cancelling'] as const
