import type { WriteError } from 'mongodb'
import { type Batch, Batcher } from '../concurrency/index.js'
import { isBulkWriteError, isDuplicateKey } from '../database/index.js'
import { DocumentExists, type OwnerClient } from '../phases/index.js'
import { systemClock } from '../time/index.js'
import type { NewRun } from './decide.js'

type Runs = readonly NewRun[]

/** Stores the runs of schedules that are handled together with one command instead of one each. */
export class RunStore {
  private readonly batches = new Batcher<Runs>((all, batch) => this.storeAll(all, batch))

  constructor(private readonly owner: () => OwnerClient) {}

  /** Stores runs; resolves once they exist, stored by this call or by an earlier one of any replica. */
  async store(runs: Runs): Promise<void> {
    if (runs.length > 0) await this.batches.ask(runs)
  }

  /** Stores one run by itself. @returns 0 if a run with this id exists already */
  readonly insertRun = (run: NewRun): Promise<number> => insertRuns(this.owner(), [run])

  private async storeAll(all: readonly Runs[], { asked }: Batch<Runs, void>): Promise<void> {
    try {
      await insertRuns(this.owner(), all.flat())
    } catch (error) {
      if (all.length === 1) throw error
      // One that can't be stored must not fail the others.
      const alone = ({ value, resolve, reject }: (typeof asked)[number]) =>
        insertRuns(this.owner(), value).then(() => resolve(), reject)
      await Promise.all(asked.map(alone))
    }
  }
}

/**
 * Stores runs, the latest last; a duplicate key means that a run exists already.
 * @returns the number of runs that were stored
 */
export async function insertRuns(owner: OwnerClient, runs: readonly NewRun[]): Promise<number> {
  const latest = runs.at(-1)
  if (!latest) return 0
  const isQueued = latest.phase === 'Queued'
  const createdAt = systemClock.now()
  const earlier = (isQueued ? runs.slice(0, -1) : runs).map((run) => ({ createdAt, ...run }))
  const stored = await newOnes(earlier.length, async () => {
    if (earlier.length > 0) await owner.documents.insertMany(earlier as never[], { ordered: false })
  })
  if (!isQueued) return stored
  // Through the owner's client, so that replicas that listen are notified immediately.
  const ringFor = earlier.length > 0 ? 'phase' : 'these'
  return stored + (await newOnes(1, async () => void (await owner.insertMany([latest as never], { ringFor }))))
}

async function newOnes(count: number, insert: () => Promise<void>): Promise<number> {
  try {
    await insert()
    return count
  } catch (error) {
    const bulk = error instanceof DocumentExists ? error.cause : error
    if (!isBulkWriteError(bulk)) throw error
    const errors = [bulk.writeErrors as WriteError | WriteError[]].flat()
    if (errors.length === 0 || !errors.every(isDuplicateKey)) throw error
    return count - errors.length
  }
}
