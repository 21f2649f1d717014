import type { Document } from 'mongodb'
import type { AnyHandler } from '../../phases/index.js'
import { sleep } from '../../time/index.js'
import { documentKey } from './ledger-entry.js'
import type { LedgerStep, StepLedger } from './step-ledger.js'

/** How long handlers take beyond their own work, so that leases are held when something happens to their replica. */
export interface Pace {
  readonly leastMs: number
  readonly mostMs: number
  /** Of the first step of a document with `slow: true`: longer than the lock timeout. */
  readonly slowMs: number
}

/** A step's place in its document's order. */
export type StepNumber = (lifecycle: string, phase: string, step: string | undefined, doc: Document) => number

/**
 * Records each run of a handler in the ledger, and makes it last a while without looking at its signal: the hardest kind
 * of handler. The work comes first, so that a replica paused in the middle has only its outcome left to write late.
 * @param hurry aborts when no handler should last any longer
 */
export function observedHandlers(ledger: StepLedger, pace: () => Pace, hurry: AbortSignal, numberOf: StepNumber) {
  const wasSlow = new Set<string>()
  return (lifecycle: string, phase: string, handler: AnyHandler): AnyHandler => {
    const observed: AnyHandler = async (doc, step) => {
      const document = documentKey(lifecycle, doc['_id'])
      const entry: LedgerStep = {
        document,
        number: numberOf(lifecycle, phase, step.name, doc),
        step: step.name === undefined ? phase : `${phase}/${step.name}`,
        fence: step.fence,
        leaseLeftMs: () => step.leaseLeftMs(),
      }
      await ledger.begin(entry)
      let outcome = 'threw'
      try {
        const returned = await handler(doc, step)
        outcome = returned.kind === 'moveTo' ? `moveTo ${returned.phase}` : returned.kind
        const lastsMs = doc['slow'] === true && !wasSlow.has(document) ? pace().slowMs : between(pace())
        await sleep(lastsMs, { signal: hurry })
        wasSlow.add(document)
        return returned
      } finally {
        await ledger.end(entry, outcome)
      }
    }
    return observed
  }
}

const between = ({ leastMs, mostMs }: Pace) => leastMs + Math.random() * (mostMs - leastMs)
