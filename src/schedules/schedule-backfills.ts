import { numbered } from '../options/index.js'
import {
  type BackfillOptions,
  type BackfillPreview,
  type BackfillState,
  backfillState,
  checkedBackfill,
  nextRuns,
} from './backfill.js'
import type { NewRun } from './decide.js'
import { type Backfill, present } from './documents.js'
import { anew } from './edit-update.js'
import { InvalidBackfill, NoSuchSchedule } from './errors.js'
import type { By } from './schedule-owner-options.js'
import { requireId, ScheduleReader, type StoredSchedule } from './schedule-reader.js'

/** The methods that begin and end backfills of schedules. */
export abstract class ScheduleBackfills extends ScheduleReader {
  /**
   * Counts the runs that a backfill would make. Nothing is changed.
   * @throws NoSuchSchedule, InvalidBackfill
   */
  async previewBackfill(id: string, options: BackfillOptions): Promise<BackfillPreview> {
    return (await checkedBackfill(this.runDocuments, await this.withNow(id), options)).preview
  }

  /**
   * Begins to run each due time of a past range, the oldest first, by replicas that know the task. The runs go one at a time, or up to
   * `concurrency` at a time. Runs that are due in the meantime go first, and while the schedule is paused the backfill begins nothing. A
   * schedule has one backfill at a time.
   * @returns the backfill; `backfillState` returns its progress
   * @throws NoSuchSchedule, InvalidBackfill
   * @example await schedules.backfill('nightly', { from: new Date('2026-11-01'), to: new Date('2026-11-20'), by: 'anna' }) // { id: 'bf4f2a9c1b', runs: 19, ... }
   */
  async backfill(id: string, options: BackfillOptions): Promise<Backfill> {
    const found = await this.withNow(id)
    const before = await backfillState(this.runDocuments, found)
    if (before && !['Done', 'Aborted'].includes(before.condition))
      throw new InvalidBackfill(id, [`there is one already: ${before.id}, it is ${before.condition}`])
    const { backfill, preview } = await checkedBackfill(this.runDocuments, found, options)
    if (preview.runs === 0)
      throw new InvalidBackfill(id, [
        `nothing to run: of ${numbered(preview.dueTimes, 'due time')} in the range none is left to run`,
      ])
    // This also replaces one that a user has made unreadable.
    const idBefore: unknown = (found.backfill as Partial<Backfill> | null | undefined)?.id
    const asRead = { 'backfill.id': typeof idBefore === 'string' ? idBefore : { $not: { $type: 'string' } } }
    const edit = { action: 'backfill', ...present({ reason: options.reason }) }
    const { matchedCount } = await this.schedules.updateOne({ _id: id, ...asRead } as object, [
      anew({ by: options.by, edit }, false),
      { $set: { backfill: { $literal: backfill } } },
    ])
    if (matchedCount === 0) throw new InvalidBackfill(id, ['somebody has begun another one at this moment'])
    await this.beginRuns(id, backfill, backfill.concurrency)
    return backfill
  }

  /** A schedule's latest backfill and its progress; undefined if it has none. @throws NoSuchSchedule */
  async backfillState(id: string): Promise<BackfillState | undefined> {
    return backfillState(this.runDocuments, await this.withNow(id))
  }

  /** The latest backfill of each schedule that has one, by the schedules' ids. */
  async backfills({ limit = 100 }: { readonly limit?: number | undefined } = {}): Promise<BackfillState[]> {
    const pipeline = [
      { $match: { 'backfill.id': { $type: 'string' } } },
      { $sort: { _id: 1 } },
      { $limit: limit },
      { $addFields: { now: '$$NOW' } },
    ]
    const found = await this.schedules.aggregate<StoredSchedule & { now: Date }>(pipeline).toArray()
    const states = await Promise.all(found.map((one) => backfillState(this.runDocuments, one)))
    return states.flatMap((state) => state ?? [])
  }

  /**
   * Resumes a backfill whose runs are gone: they were deleted, or a replica of an older version ended one. @throws NoSuchSchedule,
   * InvalidBackfill
   */
  async resumeBackfill(id: string): Promise<void> {
    const state = await this.openBackfill(id)
    const open = (state.counts.Queued ?? 0) + (state.counts.Running ?? 0)
    const begun = await this.beginRuns(id, state, state.concurrency - open)
    if (begun > 0 || open > 0) return
    const allBegun = { $set: { 'backfill.allBegun': true } as object }
    await this.schedules.updateOne({ _id: id, 'backfill.id': state.id } as object, allBegun)
  }

  /** Aborts a backfill: no further run of it begins; those in progress continue. @throws NoSuchSchedule, InvalidBackfill */
  async abortBackfill(id: string, { by }: By = {}): Promise<void> {
    const { id: backfill } = await this.openBackfill(id)
    await this.schedules.updateOne({ _id: id, 'backfill.id': backfill } as object, [
      anew({ by, edit: { action: 'backfill aborted' } }, false),
      { $set: { 'backfill.abortedAt': '$$NOW' } },
    ])
  }

  private async openBackfill(id: string): Promise<BackfillState> {
    const state = await this.backfillState(id)
    if (!state) throw new InvalidBackfill(id, ['it has none'])
    if (state.condition === 'Done' || state.condition === 'Aborted')
      throw new InvalidBackfill(id, [`${state.id} has ended: it is ${state.condition}`])
    return state
  }

  /** Begins up to `most` runs; a run that another run's end has begun in the meantime isn't counted. */
  private async beginRuns(id: string, backfill: Backfill, most: number): Promise<number> {
    let begun = 0
    let after: Date | undefined
    while (begun < most) {
      const runs = await nextRuns(this.runDocuments, id, backfill, most - begun, after)
      if (runs.length === 0) break
      for (const run of runs) begun += await this.insertRun(run)
      after = runs.at(-1)!.scheduledFor // a run that exists is passed over, whatever it is
    }
    return begun
  }

  protected async withNow(id: string): Promise<StoredSchedule & { readonly now: Date }> {
    requireId(id)
    const [found] = await this.schedules
      .aggregate<StoredSchedule & { now: Date }>([{ $match: { _id: id } }, { $addFields: { now: '$$NOW' } }])
      .toArray()
    if (!found) throw new NoSuchSchedule(id)
    return found
  }

  /** @returns 0 if a run with this id exists already */
  protected abstract insertRun(run: NewRun): Promise<number>
}
