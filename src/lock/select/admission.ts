import type { Document } from 'mongodb'
import { type Candidates, eachList, type Reach, type SelectionPolicy } from './selection.js'

/** A look reads at most this many more to make up for those that are not to be claimed now. */
const MOST_PASSED_OVER = 5_000

/** Whether a document may be claimed now, by the fields that Phaselock reads and how often it was claimed; asked for each, in order. */
export type Admits = (document: Document) => boolean

/** Leaves alone what its caller doesn't admit now; the next look reads beyond those. */
export class Admission implements SelectionPolicy {
  private passedOver = 0
  admits: Admits | undefined

  reach(): Reach {
    return { spare: Math.min(MOST_PASSED_OVER, 2 * this.passedOver) }
  }

  choose(_phase: string, candidates: Candidates): Candidates {
    this.passedOver = 0
    const { admits } = this
    if (!admits) return candidates
    const admitted = (documents: readonly Document[]) =>
      documents.filter((document) => {
        const mayBeClaimed = admits(document)
        if (!mayBeClaimed) this.passedOver += 1
        return mayBeClaimed
      })
    return { ...eachList(candidates, admitted), retries: admitted(candidates.retries) }
  }
}
