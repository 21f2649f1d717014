import { isDefiniteRefusal, mostPerUpdate, type NamedUpdate, updateNamed } from '../documents/write.js'
import type { StepEnd, Verdict } from '../record/step-end.js'
import { groupEnds } from './end-groups.js'
import { EndRetries, type EndWriterOptions, type Sent, Verdicts } from './end-retries.js'
import { type EndGroup, endFilter, endUpdate, putsToSleep } from './end-update.js'

/** Called while a write goes on. */
export interface EndProgress {
  /** The first command didn't record all: the rest may take long, and other writes needn't wait for it. */
  readonly inDoubt?: (() => void) | undefined
  /** An end that was in doubt has its verdict. */
  readonly decided?: ((end: StepEnd, verdict: Verdict) => void) | undefined
}

/**
 * Records how steps ended, like ends together.
 *
 * Invariants: each write is conditional on `{ _id, lockedBy: token }` and changes or removes the token; after an error whose
 * outcome is unknown the documents are read back before anything is sent again; a verdict is never guessed. The caller ensures that
 * a document has one write at a time.
 */
export class EndWriter {
  private readonly retries: EndRetries

  constructor(private readonly options: EndWriterOptions) {
    this.retries = new EndRetries(options, (groups) => this.send(groups))
  }

  /** Records ends and returns a verdict for each; their leases are passed to their next step, or ended, accordingly. */
  async write(ends: readonly StepEnd[], progress: EndProgress = {}): Promise<Map<StepEnd, Verdict>> {
    if (ends.length === 0) return new Map()
    const groups = groupEnds(ends, mostPerUpdate(this.options.collection))
    const verdicts = new Verdicts(ends.length)
    const sent = await this.send(groups)
    if (sent.kind === 'allMatched') {
      for (const group of groups) verdicts.recorded(group)
    } else {
      progress.inDoubt?.()
      verdicts.tell = progress.decided
      this.retries.add(groups, sent, verdicts)
    }
    return verdicts.all
  }

  private async send(groups: readonly EndGroup[]): Promise<Sent> {
    // If the terms can't be read, the server judges them anyway.
    if (groups.some(putsToSleep)) await this.options.keepTermsFresh?.().catch(() => undefined)
    const total = groups.reduce((sum, group) => sum + group.members.length, 0)
    try {
      const matched = await this.update(groups)
      return matched === total ? { kind: 'allMatched' } : { kind: 'fewer', missing: total - matched }
    } catch (error) {
      return isDefiniteRefusal(error) ? { kind: 'refused', error } : { kind: 'unknown', error }
    }
  }

  private async update(groups: readonly EndGroup[]): Promise<number> {
    const terms = this.options.terms()
    const updates = groups.map((group): NamedUpdate => {
      const ids = group.members.map((member) => member.lease.id)
      const filter = { _id: { $in: ids as never[] }, ...endFilter(terms, group) }
      return { ids, filter, update: endUpdate(terms, group) }
    })
    return (await updateNamed(this.options.collection, updates)).matchedCount
  }
}
