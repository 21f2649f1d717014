import { randomUUID } from 'node:crypto'
import type { Collection, Db } from 'mongodb'

/** A section of code that ran under a named lock. Times are those of the record's own server. */
export interface Section {
  readonly _id: string
  readonly lock: string
  readonly fence: number
  readonly enteredAt: Date
  /** Absent: its process ended within it, or it had lost its lock by then. */
  readonly leftAt?: Date
}

/** A try of a schedule's run. */
export interface Try {
  readonly run: string
}

/** What is known of a run in the database under test. */
export interface EndedRun {
  readonly _id: string
  readonly schedule: string
  readonly scheduledFor: Date
  readonly phase: string
  /** Tries whose replica died. */
  readonly lost?: number
}

const JOURNALED = { writeConcern: { w: 1, journal: true } } as const

/** What was done under named locks and by schedules, on a server that the faults leave alone. */
export class TimedRecord {
  private readonly sections: Collection<Section>
  private readonly tries: Collection<Try>

  constructor(db: Db) {
    this.sections = db.collection<Section>('demo.sections', JOURNALED)
    this.tries = db.collection<Try>('demo.tries', JOURNALED)
  }

  /**
   * Runs `work` within a section. It counts from when its entry was stamped to when its leaving was, if it is sure that the lock was held
   * by then.
   * @param isHeld whether the lock is still ours, by a clock that began before it was asked for
   */
  async within(lock: string, fence: number, isHeld: () => boolean, work: () => Promise<void>): Promise<void> {
    const _id = randomUUID()
    const entry = { lock, fence, enteredAt: '$$NOW' }
    await this.sections.updateOne({ _id }, [{ $set: entry }], { upsert: true })
    if (!isHeld()) {
      await this.sections.deleteOne({ _id })
      return
    }
    await work()
    await this.sections.updateOne({ _id }, [{ $set: { leftAt: '$$NOW' } }])
    if (!isHeld()) await this.sections.updateOne({ _id }, { $unset: { leftAt: true } })
  }

  async tried(run: string): Promise<void> {
    await this.tries.insertOne({ run })
  }

  /** Sections under locks. */
  async allSections(): Promise<Section[]> {
    return await this.sections.find().toArray()
  }

  async triesByRun(): Promise<Map<string, number>> {
    const counts = await this.tries.aggregate([{ $group: { _id: '$run', count: { $sum: 1 } } }]).toArray()
    return new Map(counts.map(({ _id, count }) => [String(_id), Number(count)]))
  }
}

/** What must not be: somebody enters while another is within, or with a fence that isn't higher than those before. */
export function wrongSections(sections: readonly Section[]): string[] {
  return [...Map.groupBy(sections, ({ lock }) => lock)].flatMap(([lock, those]) => {
    const sorted = those.sort((a, b) => a.enteredAt.getTime() - b.enteredAt.getTime())
    return sorted.flatMap((one, i) => {
      const before = sorted.slice(0, i)
      const within = before.find(({ leftAt }) => leftAt && leftAt > one.enteredAt)
      const newer = before.find(({ fence, enteredAt }) => fence >= one.fence && enteredAt < one.enteredAt)
      return [
        within && `${lock}: fence ${one.fence} entered while ${within.fence} was within`,
        newer && `${lock}: fence ${one.fence} entered after ${newer.fence}`,
      ].filter((text) => text !== undefined)
    })
  })
}

/** What must not be: a due time without a run, a run that didn't end, one that ended without a try, and one tried again though nobody died. */
export function wrongRuns(runs: readonly EndedRun[], tries: ReadonlyMap<string, number>, everyMs: number): string[] {
  const missing = [...Map.groupBy(runs, ({ schedule }) => schedule)].flatMap(([schedule, those]) => {
    const due = those.map(({ scheduledFor }) => scheduledFor.getTime()).sort((a, b) => a - b)
    return due
      .slice(1)
      .filter((at, i) => at - due[i]! !== everyMs)
      .map((at) => `${schedule}: no run, or two, before ${new Date(at).toISOString()}`)
  })
  const wrong = runs.flatMap(({ _id, phase, lost = 0 }) => {
    const tried = tries.get(_id) ?? 0
    if (phase === 'Queued' || phase === 'Running') return [`${_id}: still ${phase}`]
    if (phase === 'Completed' && tried === 0) return [`${_id}: Completed without a try`]
    return tried > 1 + lost ? [`${_id}: tried ${tried} times, ${lost} of them lost`] : []
  })
  return [...missing, ...wrong]
}
