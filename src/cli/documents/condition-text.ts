import type { Condition } from '../../operations/index.js'
import { formatMs } from '../../time/index.js'

/** A document's condition in a few words, for a table. */
export function conditionText(condition: Condition, now: Date): string {
  switch (condition.kind) {
    case 'held':
      return `held by ${condition.by}`
    case 'sleeping':
      return `sleeping until ${condition.until.toISOString()} (${inMs(condition.until, now)})`
    case 'due':
      return condition.expired === undefined ? 'due' : `due: the lease of ${condition.expired} has run out`
    case 'final':
      return condition.removedAt ? `final, removed ${inMs(condition.removedAt, now)}` : 'final, removed next'
    case 'unknownPhase':
      return 'unknown phase: left alone'
    case 'broken':
      return `broken: ${condition.field} is ${condition.found}`
    case 'parked':
    case 'resting':
      return condition.kind
  }
}

const inMs = (then: Date, now: Date) => `in ${formatMs(Math.max(0, then.getTime() - now.getTime()))}`
