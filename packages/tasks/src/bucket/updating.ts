import type { Handler } from 'phaselock'
import { configure } from './configure.js'
import type { Bucket } from './documents.js'
import { type BucketWork, claimOf, parkRefused } from './work.js'

/** Applies the owner's changes to the document, and measures a bucket against its quota. */
export function updating(work: BucketWork): Handler<'Created', Bucket> {
  return parkRefused(async (doc, step) => {
    const claim = claimOf(doc)
    if (!claim) return step.park('expected a bucket that was created by this document, there is none')
    const { name, problem } = work.wishes(doc)
    if (problem) return step.park(problem)
    const region = doc.region ?? undefined
    if (name !== claim.bucket || region !== claim.region) {
      return step.park(
        `a bucket's name and region can't be changed: this one is ${claim.bucket}, ${claim.region ?? 'no region'}`,
      )
    }
    return configure(work, doc, step, claim)
  })
}
