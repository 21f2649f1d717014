import { lifecycleOf } from '../dist/index.js'

export const LOCK_TIMEOUT_S = 30
/** How a victim ends, each with a lifecycle and a collection of its own; one survivor runs all of them. */
export const FATES = ['killed', 'stopped', 'paused']
/** Below the documents given to a victim, so that some of them are claimed and not begun. */
export const CONCURRENCY = 16

export const recovering = (fate) =>
  lifecycleOf().define({
    name: fate,
    collection: `Recovery_${fate}`,
    phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
    lockTimeout: `${LOCK_TIMEOUT_S}s`,
    concurrency: CONCURRENCY,
  })
