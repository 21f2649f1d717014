import type { Limit } from '../../lock/index.js'
import { type ChildrenShown, childrenOf, type ParentShown, parentOf } from '../inspect/children.js'
import type { Condition } from '../inspect/condition.js'
import { type DocumentRef, type Found, findJudged } from '../inspect/find.js'
import { holderNamedBy, type ReplicaState } from '../inspect/replicas.js'
import { seenIn } from '../inspect/seen.js'
import type { System } from '../system/system.js'
import type { Facts } from './facts.js'
import { asStored, judge } from './judge.js'
import type { Term, TermName } from './term.js'

/** A limit, and the number of its slots that a document needs. */
export interface LimitShown extends Limit {
  readonly needs: number
  /** The default number of slots: of a key, or as lifecycles declare it; undefined if they declare none, or any number. */
  readonly declared: number | undefined
}

/** One document with everything that a person wants to see. */
export interface Shown extends Found {
  /** The reason why the server lets no replica write it, although it is due; undefined if it does. */
  readonly refusal: string | undefined
  /** The replica that holds it, or held it last if that lease has expired; undefined if it is not held, or the replica isn't listed. */
  readonly holder: ReplicaState | undefined
  /** The limits that its phase needs, if it is due: it waits for a slot if one of them has no free slot. */
  readonly limits: readonly LimitShown[]
  /** The first condition for its next step that fails; undefined: none does. */
  readonly blockedBy: TermName | undefined
  /** The other conditions that fail although it is due. */
  readonly alsoBlockedBy: readonly Term[]
  /** The state of the children that its steps have inserted; undefined if they have inserted none. */
  readonly children: ChildrenShown | undefined
  /** Its parent; undefined if it has no parent. */
  readonly parent: ParentShown | undefined
  /** The digest of what was read: an action that is given it does nothing if the document has changed since. */
  readonly seen: string
  /** The documents of other lifecycles with the same `_id`. */
  readonly also: readonly Found[]
}

/**
 * Shows one document: a sentence that explains what it waits for, its fields and its history.
 * @example (await showDocument(system, { id: 'shop' })).explanation // Sleeps, due in 3 s, ...
 * @throws NotFound, UsageError
 */
export async function showDocument(system: System, ref: DocumentRef): Promise<Shown> {
  const { found, also, inForce } = await findJudged(system, ref)
  const isDue = found.condition.kind === 'due'
  const token = holderOf(found.condition)
  const [{ verdict, facts }, holder, children, parent] = await Promise.all([
    judge(await asStored(system, found, inForce)),
    token === undefined ? undefined : holderNamedBy(system, token),
    childrenOf(system, found),
    parentOf(system, found),
  ])
  const failing = verdict.terms.filter((term) => term.holds === false)
  return {
    ...found,
    // A document that isn't due is explained by its own fields; the rest has lines of its own.
    explanation: isDue ? verdict.sentence : found.explanation,
    refusal: 'value' in facts.refusal ? facts.refusal.value : undefined,
    ...{ holder, limits: isDue ? limitsShown(facts) : [] },
    ...{ blockedBy: verdict.blockedBy, alsoBlockedBy: isDue ? failing.slice(1) : [] },
    ...{ children, parent, seen: seenIn(system, found), also },
  }
}

/** The token of its present lease, or of one that has expired. */
const holderOf = (condition: Condition): string | undefined =>
  condition.kind === 'held' ? condition.by : condition.kind === 'due' ? condition.expired : undefined

/** The limits that it needs, without those of which all slots are free because nobody has used them yet. */
function limitsShown({ limits }: Facts): LimitShown[] {
  if ('unknown' in limits) return []
  return limits.value.flatMap(({ limit, slots, key, declared, limitNow }) => {
    if (!limitNow && (key || declared !== undefined)) return []
    const unset = { name: limit, slots: 0, rate: null, paused: null, holders: [], damaged: null }
    return [{ ...unset, ...limitNow, needs: slots, declared }]
  })
}
