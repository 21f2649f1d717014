import type { OwnerSession } from './owner-types.js'

/** The actions that wait for a session's commit. */
const waiting = new WeakMap<OwnerSession, Set<() => void>>()

/**
 * Acts once the session's transaction is committed, because no one sees what it wrote before that; never if it is aborted. A commit that fails may
 * have been executed, and may be tried again: then it acts after each attempt.
 *
 * The driver's sessions announce only their end, and may live as long as their process. So the session's own methods are wrapped, once.
 * `withTransaction` calls them too.
 */
export function afterCommit(session: OwnerSession, act: () => void): void {
  const acts = waiting.get(session) ?? new Set()
  if (!waiting.has(session)) wrap(session, acts)
  waiting.set(session, acts)
  acts.add(act)
}

function wrap(session: OwnerSession, acts: Set<() => void>): void {
  const { commitTransaction, abortTransaction } = session
  session.commitTransaction = async (...args) => {
    try {
      await commitTransaction.apply(session, args)
    } finally {
      for (const act of acts) act()
    }
    acts.clear()
  }
  session.abortTransaction = (...args) => {
    acts.clear()
    return abortTransaction.apply(session, args)
  }
}
