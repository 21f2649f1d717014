import { type DocumentRef, type Found, findJudged } from '../inspect/find.js'
import { seenIn } from '../inspect/seen.js'
import type { InForce, System } from '../system/system.js'
import { type Action, actionFor } from './action.js'
import { asStored, judge } from './judge.js'
import type { Verdict } from './term.js'

/** Why no step of a document runs, or which one is next. */
export interface Why extends Verdict {
  /** The smallest action that helps, with what it would do; absent: there is none, or none is needed. */
  readonly action?: Action
  /** The digest of what was read: an action that is given it does nothing if the document has changed since. */
  readonly seen: string
}

/**
 * Explains why no step of a document runs now. It costs a bounded number of commands, none of which scans: what is ahead of it is counted on an index, up
 * to 1,000.
 * @example await whyDocument(system, { id: '4711' }) // { blockedBy: 'limit', sentence: 'Due since 3 min, but it waits for a slot of ...', terms: [...], ... }
 * @throws NotFound, UsageError
 */
export async function whyDocument(system: System, ref: DocumentRef): Promise<Why> {
  const { found, inForce } = await findJudged(system, ref)
  return whyOf(system, found, inForce)
}

/**
 * The same for a document that was found.
 * @param inForce what it was judged by. Default: it is read
 */
export async function whyOf(system: System, found: Found, inForce?: InForce): Promise<Why> {
  const judged = await asStored(system, found, inForce)
  const { verdict, facts } = await judge(judged)
  const action = await actionFor(judged, verdict, facts)
  return { ...verdict, ...(action && { action }), seen: seenIn(system, found) }
}
