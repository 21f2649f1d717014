import { writeFile } from 'node:fs/promises'
import type { Collection, Db } from 'mongodb'
import type { DocumentKey, Fault, FaultEntry, HeldDocument, LedgerEntry, StepEntry } from './ledger-entry.js'

/** Next to the lifecycles' collections; nothing in Phaselock reads it. */
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

  /** The begins of these documents. */
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

  /** In the order of the server's time, as JSON lines. */
  async writeTo(file: string): Promise<void> {
    const entries = (await this.all()).sort((a, b) => a.at.getTime() - b.at.getTime())
    await writeFile(file, entries.map((entry) => `${JSON.stringify(entry)}\n`).join(''))
  }
}

/**
 * The server itself keeps the ledger, so a killed replica can't lose what it wrote, and no write waits for the disk. Where the
 * database itself is killed, the client asks for its journal.
 */
export function ledgerCollection(db: Db): Collection<LedgerEntry> {
  const { journal } = db.client.options.writeConcern ?? {}
  return db.collection<LedgerEntry>(COLLECTION, { writeConcern: { w: 1, ...(journal ? { journal } : {}) } })
}

type Unstamped = Omit<StepEntry, 'at'> | Omit<FaultEntry, 'at'>

/** Writes an entry with the server's time; sent again, it keeps the time of the first. */
export async function stamp(entries: Collection<LedgerEntry>, { _id, ...entry }: Unstamped): Promise<void> {
  await entries.updateOne({ _id }, [{ $set: { at: { $ifNull: ['$at', '$$NOW'] } } }, { $set: literals(entry) }], {
    upsert: true,
  })
}

const literals = (entry: object) =>
  Object.fromEntries(Object.entries(entry).map(([field, value]) => [field, { $literal: value }]))
