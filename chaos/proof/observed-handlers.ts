import type { Collection, Db, Document } from 'mongodb'
import type { AnyHandler } from '../../dist/phases/index.js'
import { sleep } from '../../dist/time/index.js'
import { documentKey, type LedgerEntry, ledgerCollection, type StepEntry, stamp } from './ledger.ts'

const TRIES = 5
const BETWEEN_TRIES_MS = 100

/** The time that handlers take beyond their own work, so that leases are held when a fault hits their replica. */
export interface Pace {
  readonly leastMs: number
  readonly mostMs: number
  /** The time of the first step of a document with `slow: true`: longer than the lock timeout. */
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

/** A step as its handler knows it. */
export interface LedgerStep extends Pick<StepEntry, 'document' | 'number' | 'step' | 'fence'> {
  leaseLeftMs(): number
}

/**
 * A replica's side of the ledger.
 *
 * An entry is written with 0 ms left of its lease, and the actual rest is added when the server has answered. So time left in
 * the ledger proves that the server stamped the entry within the lease, whatever happens to the process or the ledger:
 * if it is paused, blocked or killed between the two, it has claimed nothing.
 */
export class StepLedger {
  private readonly entries: Collection<LedgerEntry>
  private readonly replica: string
  private count = 0

  constructor(db: Db, replica: string) {
    this.replica = replica
    this.entries = ledgerCollection(db)
  }

  /** @throws when the lease is over, or the ledger fails: the handler must not run then */
  async begin(step: LedgerStep): Promise<void> {
    const _id = this.nextId()
    await stamp(this.entries, { _id, kind: 'late', ...this.unproven(step) })
    if (await this.prove(_id, step, 'begin')) return
    throw new Error(`${step.step} of ${step.document} has not begun: its lease was over before that was in the ledger`)
  }

  async end(step: LedgerStep, outcome: string): Promise<void> {
    const _id = this.nextId()
    await again(() => stamp(this.entries, { _id, kind: 'end', ...this.unproven(step), outcome }))
    await this.prove(_id, step, 'end')
  }

  /** Adds the rest of the lease, once the server has answered that the entry is stored. @returns true if the lease still held */
  private async prove(_id: string, step: LedgerStep, kind: StepEntry['kind']): Promise<boolean> {
    const leaseLeftMs = step.leaseLeftMs()
    if (leaseLeftMs <= 0) return false
    await again(async () => {
      await this.entries.updateOne({ _id }, { $set: { kind, leaseLeftMs } } as never)
    })
    return true
  }

  private nextId(): string {
    this.count += 1
    return `${this.replica} ${this.count}`
  }

  private unproven({ document, number, step, fence }: LedgerStep) {
    return { document, number, step, fence, leaseLeftMs: 0, replica: this.replica }
  }
}

async function again(write: () => Promise<void>): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await write()
    } catch (error) {
      if (tries === TRIES) throw error
      await sleep(BETWEEN_TRIES_MS)
    }
  }
}
