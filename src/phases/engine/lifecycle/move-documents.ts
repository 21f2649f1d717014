import type { Document, Filter } from 'mongodb'
import {
  AS_IT_STANDS,
  CLAIM_INDEX,
  onClaimIndex,
  onIndex,
  type Refused,
  type Rename,
  renameLook,
  renameUpdate,
  ruleLook,
  ruleUpdate,
  STATE_INDEX,
  type StateRule,
  updateAround,
} from '../../../lock/index.js'
import type { LifecycleEnvironment } from '../context/environment.js'

const BATCH = 1_000
/** The time that documents which refuse to be moved may take in a tick: each costs a few round trips. */
const REFUSALS_MOST_MS = 1_000

export interface MoveResult {
  readonly moved: number
  /** Documents that refused to be moved; all others were moved. */
  readonly refused: readonly Refused[]
  /** True if there may be more: refusals took so long that the next look goes on. */
  readonly more: boolean
}

type MoveEnvironment = Pick<LifecycleEnvironment, 'collection' | 'terms' | 'refusing' | 'clock'>

/** Moves the documents that match a state rule. */
export function applyRule(env: MoveEnvironment, rule: StateRule): Promise<MoveResult> {
  const terms = env.terms()
  return moveAll(env, STATE_INDEX, ruleLook(terms, rule), (ids) => ruleUpdate(terms, rule, ids))
}

/** Moves the documents that are in a phase of an older version. */
export function applyRename(env: MoveEnvironment, rename: Rename): Promise<MoveResult> {
  const terms = env.terms()
  return moveAll(env, CLAIM_INDEX, renameLook(terms, rename), (ids) => renameUpdate(terms, rename, ids))
}

/**
 * Moves documents in bounded bulk writes, each judged again by the server: a holder is never touched. Those that refuse are
 * left alone for a while.
 */
async function moveAll(
  { collection, refusing, clock }: MoveEnvironment,
  hint: typeof CLAIM_INDEX | typeof STATE_INDEX,
  look: Filter<Document>,
  update: (ids: readonly unknown[]) => [Filter<Document>, Document[]],
): Promise<MoveResult> {
  const refused: Refused[] = []
  const startedMs = clock.monotonicMs()
  let moved = 0
  for (;;) {
    const skipped = refusing.ids()
    const others = skipped.length > 0 ? { _id: { $nin: skipped as never[] } } : {}
    const limit = BATCH + refusing.unnamed
    const find = (index: Document) =>
      collection.find({ ...look, ...others }, { projection: { _id: 1 }, hint: index, limit, ...AS_IT_STANDS }).toArray()
    const read = await (hint === CLAIM_INDEX ? onClaimIndex(collection, find) : onIndex(collection, hint, find))
    const found = read.map((document) => document['_id'] as unknown).filter((id) => !refusing.isPaused(id))
    if (found.length === 0) return { moved, refused, more: false }
    const matching = (ids: readonly unknown[]) => update(ids)[0]
    const some = found.slice(0, BATCH)
    const { matched, refused: culprits } = await updateAround(collection, some, matching, update(some)[1])
    moved += matched
    for (const { id } of culprits) refusing.add(id)
    refused.push(...culprits)
    // Fewer than a batch: that was all. No match: all of them were taken in the meantime.
    if (read.length < limit || (matched === 0 && culprits.length === 0)) return { moved, refused, more: false }
    if (refused.length > 0 && clock.monotonicMs() - startedMs > REFUSALS_MOST_MS) return { moved, refused, more: true }
  }
}
