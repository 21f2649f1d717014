import { setImmediate } from 'node:timers/promises'
import type { WriteError } from 'mongodb'
import { isBulkWriteError, isDuplicateKey } from '../database/index.js'
import { DocumentExists, type OwnerClient } from '../phases/index.js'
import { systemClock } from '../time/index.js'
import type { NewRun } from './decide.js'

interface Batch {
  readonly runs: NewRun[]
  readonly stored: Promise<unknown>
  askers: number
}

/** Stores the runs of schedules that are handled together with one command instead of one each. */
export class RunStore {
  private batch: Batch | undefined

  constructor(private readonly owner: () => OwnerClient) {}

  /** Stores runs; resolves once they exist, stored by this call or by an earlier one of any replica. */
  async store(runs: readonly NewRun[]): Promise<void> {
    if (runs.length === 0) return
    this.batch ??= this.begin()
    const { batch } = this
    batch.askers += 1
    batch.runs.push(...runs)
    try {
      await batch.stored
    } catch (error) {
      // One that can't be stored must not fail the others.
      if (batch.askers === 1) throw error
      await insertRuns(this.owner(), runs)
    }
  }

  /** Stores one run by itself. @returns 0 if a run with this id exists already */
  readonly insertRun = (run: NewRun): Promise<number> => insertRuns(this.owner(), [run])

  private begin(): Batch {
    const runs: NewRun[] = []
    const stored = setImmediate().then(() => {
      this.batch = undefined
      return insertRuns(this.owner(), runs)
    })
    return { runs, stored, askers: 0 }
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
