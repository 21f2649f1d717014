import { type Duration, type LifecycleSettingsSpec, lifecycleOf } from 'phaselock'
import { BUCKET_COLLECTIONS, type Bucket } from './documents.js'

/** Settings of the bucket lifecycle; defaults are those of every lifecycle. */
export interface BucketSettings extends Omit<LifecycleSettingsSpec, 'fields' | 'reads'> {
  /** The retention of a deleted bucket's document. Default 1h; '0s': removed immediately. */
  readonly keepFor?: Duration | undefined
  /**
   * The interval at which a Created bucket goes through Updating: its size is measured against its quota, and its policy is set
   * again. Default 10m if the quota is a measured one, else never.
   */
  readonly reviewEvery?: Duration | 'never' | undefined
}

/**
 * The lifecycle without its handlers: for Nest's decorators, and for programs that inspect documents and run no handlers.
 * @throws InvalidLifecycle for unknown settings and those out of range
 */
export function bucketDefinition({ keepFor = '1h', reviewEvery = '10m', ...settings }: BucketSettings = {}) {
  const review = reviewEvery === 'never' ? {} : { deadline: { after: reviewEvery, moveTo: 'Updating' as const } }
  return lifecycleOf<Bucket>().define({
    name: 'bucket',
    collection: BUCKET_COLLECTIONS.bucket,
    phases: {
      Creating: { next: ['Created'] },
      Created: { rest: true, ...review },
      Updating: { next: ['Created'] },
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true, keepFor },
    },
    rules: [
      { when: 'Updating', from: ['Created', 'Updating'], moveTo: 'Updating', setState: 'Available' },
      // Creating starts over, even if it was parked for a mistake that its owner has corrected.
      { when: 'Updating', from: ['Creating'], moveTo: 'Creating', setState: 'Available' },
      { when: 'Deleted', from: 'any', moveTo: 'Deleting' },
    ],
    ...settings,
  })
}

export type BucketDefinition = ReturnType<typeof bucketDefinition>
