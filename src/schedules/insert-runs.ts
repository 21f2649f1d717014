import { MongoBulkWriteError, type WriteError } from 'mongodb'
import type { OwnerClient } from '../phases/index.js'
import type { NewRun } from './decide.js'

const DUPLICATE_KEY = 11000

interface Waiting {
  readonly runs: readonly NewRun[]
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/** Stores the runs of schedules that are looked at together with one command instead of one each. */
export class RunStore {
  private waiting: Waiting[] = []

  constructor(private readonly owner: () => OwnerClient) {}

  /** Resolves when they are there, by this call or by an earlier one of any replica. */
  store(runs: readonly NewRun[]): Promise<void> {
    if (runs.length === 0) return Promise.resolve()
    return new Promise((resolve, reject) => {
      this.waiting.push({ runs, resolve, reject })
      if (this.waiting.length === 1) setImmediate(() => void this.flush())
    })
  }

  private async flush(): Promise<void> {
    const waiting = this.waiting
    this.waiting = []
    try {
      await insertRuns(
        this.owner(),
        waiting.flatMap(({ runs }) => runs),
      )
      for (const { resolve } of waiting) resolve()
    } catch (error) {
      // One that can't be stored must not fail the others.
      if (waiting.length === 1) return waiting[0]!.reject(error)
      for (const { runs, resolve, reject } of waiting) {
        void insertRuns(this.owner(), runs).then(() => resolve(), reject)
      }
    }
  }
}

/**
 * Stores runs, the latest last; a duplicate key means that it is there already.
 * @returns how many were stored
 */
export async function insertRuns(owner: OwnerClient, runs: readonly NewRun[]): Promise<number> {
  const latest = runs.at(-1)
  if (!latest) return 0
  const isQueued = latest.phase === 'Queued'
  const earlier = isQueued ? runs.slice(0, -1) : runs
  const stored = await newOnes(earlier.length, async () => {
    if (earlier.length > 0) await owner.documents.insertMany([...earlier] as never[], { ordered: false })
  })
  if (!isQueued) return stored
  // Through the owner's client: replicas that listen hear of it at once.
  const ringFor = earlier.length > 0 ? 'phase' : 'these'
  return stored + (await newOnes(1, async () => void (await owner.insertMany([latest as never], { ringFor }))))
}

async function newOnes(count: number, insert: () => Promise<void>): Promise<number> {
  try {
    await insert()
    return count
  } catch (error) {
    if (!(error instanceof MongoBulkWriteError)) throw error
    const errors = ([] as WriteError[]).concat(error.writeErrors as WriteError[])
    if (errors.length === 0 || errors.some(({ code }) => code !== DUPLICATE_KEY)) throw error
    return count - errors.length
  }
}
