import { writeFile } from 'node:fs/promises'
import type { Collection, Db } from 'mongodb'

/** A document of any lifecycle, as the ledger names it: `api-gateway/6920...`. */
export type DocumentKey = string

export const documentKey = (lifecycle: string, id: unknown): DocumentKey => `${lifecycle}/${String(id)}`

/** A step's begin or end, written by the handler's wrapper. */
export interface StepEntry {
  readonly _id: string
  /** `late`: the lease, or the replica, was over before the handler could run, so the step never began. */
  readonly kind: 'begin' | 'end' | 'late'
  readonly document: DocumentKey
  /** The step's place in its document's order: it grows along the lifecycle, and is the same for a step that is repeated. */
  readonly number: number
  /** The step for people: `Deleting/functions`. */
  readonly step: string
  readonly fence: number
  /**
   * The rest of the lease by the replica's monotonic clock, read after the server's answer. It is 0 if the lease was over, or nothing
   * proves that it was not.
   */
  readonly leaseLeftMs: number
  /** The server's time. */
  readonly at: Date
  readonly replica: string
  /** The outcome of an end: `again`, `wait`, `park`, `threw`, `moveTo Created`. */
  readonly outcome?: string
}

export type Fault = 'kill' | 'terminate' | 'pause' | 'continue'

/** A fault inflicted on a replica, written by the demo just before it or, for a pause, just after. */
export interface FaultEntry {
  readonly _id: string
  readonly kind: 'fault'
  readonly fault: Fault
  readonly replica: string
  readonly at: Date
  /** The documents that the replica held then. */
  readonly held: readonly HeldDocument[]
}

export interface HeldDocument {
  readonly document: DocumentKey
  readonly fence: number
}

export type LedgerEntry = StepEntry | FaultEntry

/** The collection of the ledger, next to the lifecycles' collections; nothing in Phaselock reads it. */
const COLLECTION = 'demo.ledger'
const BY_DOCUMENT = { document: 1, fence: 1 } as const

/** The demo's own side of the ledger: it writes the faults and reads everything. */
export class Ledger {
  private readonly entries: Collection<LedgerEntry>

  constructor(db: Db) {
    this.entries = ledgerCollection(db)
  }

  async prepare(): Promise<void> {
    await this.entries.createIndex(BY_DOCUMENT)
  }

  /** Stamps a fault with the server's time; call it when the replica is paused, or just before the fault. */
  async fault(fault: Fault, replica: string, held: readonly HeldDocument[] = []): Promise<void> {
    await stamp(this.entries, { _id: `fault ${fault}`, kind: 'fault', fault, replica, held: [...held] })
  }

  async begins(documents: readonly DocumentKey[]): Promise<StepEntry[]> {
    const found = await this.entries
      .find({ document: { $in: [...documents] }, kind: 'begin' } as never, { hint: BY_DOCUMENT })
      .toArray()
    return found as StepEntry[]
  }

  async size(): Promise<number> {
    return await this.entries.estimatedDocumentCount()
  }

  async all(): Promise<LedgerEntry[]> {
    return await this.entries.find().toArray()
  }

  /** Writes the entries in the order of the server's time, as JSON lines. */
  async writeTo(file: string): Promise<void> {
    const entries = (await this.all()).sort((a, b) => a.at.getTime() - b.at.getTime())
    await writeFile(file, entries.map((entry) => `${JSON.stringify(entry)}\n`).join(''))
  }
}

/**
 * The collection of the ledger. The server itself keeps it, so a killed replica can't lose its entries, and no write waits for the disk. If
 * the database itself is killed, the client asks for its journal.
 */
export function ledgerCollection(db: Db): Collection<LedgerEntry> {
  const { journal } = db.client.options.writeConcern ?? {}
  return db.collection<LedgerEntry>(COLLECTION, { writeConcern: { w: 1, ...(journal ? { journal } : {}) } })
}

type Unstamped = Omit<StepEntry, 'at'> | Omit<FaultEntry, 'at'>

/** Writes an entry with the server's time; when sent again, it keeps the time of the first. */
export async function stamp(entries: Collection<LedgerEntry>, { _id, ...entry }: Unstamped): Promise<void> {
  await entries.updateOne({ _id }, [{ $set: { at: { $ifNull: ['$at', '$$NOW'] } } }, { $set: literals(entry) }], {
    upsert: true,
  })
}

const literals = (entry: object) =>
  Object.fromEntries(Object.entries(entry).map(([field, value]) => [field, { $literal: value }]))
