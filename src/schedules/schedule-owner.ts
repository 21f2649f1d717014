import type { Collection, Document } from 'mongodb'
import { isDuplicateKey, learnSharding } from '../database/index.js'
import { cancelText, DUE_AND_NOBODYS, updateMatching } from '../lock/index.js'
import { numbered, shown, unknownOptions } from '../options/index.js'
import { StepAborted } from '../phases/index.js'
import {
  type BackfillOptions,
  type BackfillPreview,
  type BackfillState,
  backfillState,
  checkedBackfill,
  nextRuns,
} from './backfill.js'
import { changedFields, changesBetween, fieldsOf, MOST_EDITS, type NewRun, runOf, SCHEDULE_PHASES } from './decide.js'
import { readSchedule } from './definition/read-schedule.js'
import {
  type Json,
  OWNERS_FIELDS,
  SCHEDULE_FIELDS,
  type ScheduleFields,
  TIMING_FIELDS,
} from './definition/schedule-fields.js'
import { type Backfill, type Edit, present, type RunDocument } from './documents.js'
import { InvalidBackfill, InvalidSchedule, NoSuchSchedule } from './errors.js'
import { runErrorOf } from './run-record.js'
import { requireId, ScheduleReader, type StoredSchedule } from './schedule-reader.js'

/** A schedule as given to `upsert`. */
export type NewSchedule = ScheduleFields

/** The options of all methods that edit schedules. */
export interface By {
  /** The author, recorded in the schedule's edits. */
  readonly by?: string | undefined
}

/** The options of `pause` and `pauseAll`. */
export interface PauseOptions extends By {
  /** When the pause ends. Default: when a user resumes the schedule. */
  readonly until?: Date | undefined
  /** The reason, for people: kept in the schedule's `paused` and `edits`, and shown by runs that it skips. */
  readonly reason?: string | undefined
}

/** The options of `run`; `by` is kept in the run's `requestedBy`. */
export interface TriggerOptions extends By {
  /** Arguments that replace the schedule's own. */
  readonly args?: Json | undefined
}

/** The options of `cancelRun`. */
export interface CancelRunOptions {
  /** The person or program that wants it to stop. */
  readonly by: string
  /** The reason, for people: at most 500 characters. */
  readonly reason?: string | undefined
}

const MOST_UPSERTS = 10
/** A filter for paused schedules. It includes `paused: true`, written by hand, and any other value that `pauseOf` takes for a pause. */
const PAUSED = { paused: { $nin: [null, false, 0, ''] } }
const isPlanned = { $eq: [{ $type: '$known' }, 'object'] }
/** The fields that were replaced by the first of several edits in a row: the schedule was planned from its `known`. */
const SUPERSEDED: Document = {
  $ifNull: ['$superseded', { $cond: [isPlanned, { fields: '$known', at: '$$NOW' }, '$$REMOVE'] }],
}
const literal = (value: unknown): Document => ({ $literal: value })

/**
 * The owner's methods of schedules, for any process; each is one conditional update in the database. A replica that holds a schedule
 * at this moment loses it, and the schedule is planned again.
 */
export abstract class ScheduleOwner extends ScheduleReader {
  /**
   * Creates a schedule, or replaces the one with this id. Its runs and its pause stay, and unless `isActive` is given it stays active or
   * inactive. Repeating the call changes nothing.
   * @throws InvalidSchedule: nothing is stored
   */
  async upsert(id: string, given: NewSchedule, { by }: By = {}): Promise<'created' | 'replaced' | 'unchanged'> {
    this.check(id, given)
    for (let attempt = 1; ; attempt += 1) {
      const before = await this.schedules.findOne({ _id: id })
      // The last attempt replaces whatever is stored: the last writer wins.
      const done = await this.upsertOver(before, id, given, by, attempt < MOST_UPSERTS)
      if (done) return done
    }
  }

  /** Replaces the document that was read, if it is unchanged; undefined if another process was quicker, so that it has to be read again. */
  private async upsertOver(
    before: StoredSchedule | null,
    id: string,
    given: NewSchedule,
    by: string | undefined,
    onlyAsRead: boolean,
  ): Promise<'created' | 'replaced' | 'unchanged' | undefined> {
    const fields = fieldsOf({ ...given, isActive: given.isActive ?? before?.isActive ?? true })
    const known = before ? fieldsOf(before) : {}
    const changed = before ? changedFields(known, fields) : []
    if (before && changed.length === 0) return 'unchanged'
    const edit = before ? { action: 'upsert', changes: changesBetween(known, fields, changed) } : { action: 'created' }
    const replan = !before || changed.some((name) => (TIMING_FIELDS as readonly string[]).includes(name))
    const gone = Object.keys(known).filter((name) => !(name in fields))
    const update = [
      anew({ by, edit }),
      {
        $set: {
          ...Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, literal(value)])),
          known: literal(fields),
          createdAt: { $ifNull: ['$createdAt', '$$NOW'] },
          ...(before ? {} : { nextRunAt: null }),
          ...(replan && before ? { superseded: SUPERSEDED } : {}),
        },
      },
      { $unset: ['broken', ...gone] },
    ]
    // If replicas start together and declare the same schedule, one creates it. Of two edits neither is lost in the other.
    const asRead = before ? { $expr: { $eq: [OWNERS_FIELDS, literal(known)] } } : { task: { $exists: false } }
    const filter = { _id: id, ...(onlyAsRead ? asRead : {}) } as object
    try {
      const { matchedCount, upsertedCount } = await this.schedules.updateOne(filter, update, { upsert: !before })
      if (matchedCount + upsertedCount === 0) return undefined
    } catch (error) {
      if (onlyAsRead && isDuplicateKey(error)) return undefined
      throw error
    }
    return before ? 'replaced' : 'created'
  }

  /** Deletes a schedule; runs in progress continue. */
  async remove(id: string): Promise<boolean> {
    requireId(id)
    return (await this.schedules.deleteMany({ _id: id })).deletedCount > 0
  }

  /**
   * Pauses a schedule: nothing runs until it is resumed, or until `until`. Due times in between are not run later.
   * @throws NoSuchSchedule, InvalidSchedule
   */
  async pause(id: string, options: PauseOptions = {}): Promise<void> {
    requireId(id)
    const { matchedCount } = await this.schedules.updateOne(
      { _id: id, ...stillToCome(options) },
      pausing(id, options, true),
    )
    if (matchedCount > 0) return
    if (!(await this.schedules.findOne({ _id: id }, { projection: { _id: 1 } }))) throw new NoSuchSchedule(id)
    throw new InvalidSchedule(id, [`until: expected a time in the future, got ${options.until?.toISOString()}`])
  }

  /**
   * Pauses all schedules.
   * @returns the number of schedules that were paused: those that were not paused already
   */
  async pauseAll(options: PauseOptions = {}): Promise<number> {
    const running = { phase: { $nin: ['Finished', 'Broken'] }, $nor: [PAUSED], ...stillToCome(options) } as object
    // They are not made due now: each is looked at when it is due. To look at a million at the same time would be wasted work.
    return this.updateAll(running, pausing('(all)', options, false))
  }

  /** Plans it from now on; a deactivated schedule becomes active again. @throws NoSuchSchedule */
  async resume(id: string, { by }: By = {}): Promise<void> {
    requireId(id)
    const update = [
      anew({ by, edit: { action: 'resume' } }),
      {
        $set: {
          isActive: true,
          known: { $cond: [isPlanned, { $mergeObjects: ['$known', { isActive: true }] }, '$$REMOVE'] },
        },
      },
      { $unset: ['paused'] },
    ]
    const { matchedCount } = await this.schedules.updateOne({ _id: id }, update)
    if (matchedCount === 0) throw new NoSuchSchedule(id)
  }

  /** Resumes all paused schedules; deactivated ones stay deactivated. */
  async resumeAll({ by }: By = {}): Promise<number> {
    const update = [anew({ by, edit: { action: 'resume' } }), { $unset: ['paused'] }]
    return this.updateAll(PAUSED, update)
  }

  private async updateAll(which: Document, update: Document[]): Promise<number> {
    const schedules = this.schedules as unknown as Collection
    await learnSharding(this.db, [schedules.collectionName])
    return updateMatching(schedules, which, update)
  }

  /**
   * Requests one run now, by a replica that knows its task. It takes the same lock as the scheduled runs, so it is Skipped while one of
   * them runs. Paused and inactive schedules also run.
   * @returns the run's id
   * @throws NoSuchSchedule, InvalidSchedule
   */
  async run(id: string, { by, args }: TriggerOptions = {}): Promise<string> {
    const found = await this.withNow(id)
    const read = readSchedule({ ...fieldsOf(found), ...present({ args }) })
    if ('problems' in read) throw new InvalidSchedule(id, read.problems)
    for (let ms = found.now.getTime(); ; ms += 1) {
      const run = runOf(id, read.schedule, new Date(ms), undefined, {
        trigger: 'manual',
        startBy: null,
        ...present({ requestedBy: by }),
      })
      if ((await this.insertRun(run)) > 0) return run._id
    }
  }

  /**
   * Stops a run that waits for the document that it has started. A running step of the document is asked to stop; a document without one is
   * parked. Then the run is Failed, for `cancelled`. A run whose task works in its own step is cancelled like any other step.
   * @returns true if it waits for a document
   * @example await schedules.cancelRun('nightly@2026-11-21T06:00:00.000Z', { by: 'anna', reason: 'stuck' }) // true
   */
  async cancelRun(runId: string, { by, reason }: CancelRunOptions): Promise<boolean> {
    requireId(runId)
    const error = runErrorOf(new StepAborted('cancelled', cancelText({ by, reason: reason ?? null })))
    const stopping: RunDocument['stopping'] = { why: 'cancelled', by, reason: reason ?? null, error }
    const waits = { _id: runId, phase: 'Running', started: { $exists: true }, outcome: { $exists: false } } as const
    // This includes a run that a replica is looking at: the replica loses it, and the run is looked at again.
    const { matchedCount } = await this.runDocuments.updateOne(waits, [
      { $set: { stopping: { $ifNull: ['$stopping', literal(stopping)] }, ...DUE_AND_NOBODYS } },
    ])
    if (matchedCount > 0) await this.ringFor(runId)
    return matchedCount > 0
  }

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
    const edit = { action: 'backfill', ...present({ reason: options.why }) }
    const { matchedCount } = await this.schedules.updateOne({ _id: id, ...asRead } as object, [
      anew({ by: options.by, edit }, false),
      { $set: { backfill: literal(backfill) } },
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

  private async withNow(id: string): Promise<StoredSchedule & { readonly now: Date }> {
    requireId(id)
    const [found] = await this.schedules
      .aggregate<StoredSchedule & { now: Date }>([{ $match: { _id: id } }, { $addFields: { now: '$$NOW' } }])
      .toArray()
    if (!found) throw new NoSuchSchedule(id)
    return found
  }

  /** Notifies listening replicas of a run that is due. */
  protected abstract ringFor(runId: string): Promise<void>

  /** @returns 0 if a run with this id exists already */
  protected abstract insertRun(run: NewRun): Promise<number>

  /** Checks the task against those that this process knows. @throws InvalidSchedule */
  protected checkTask(_id: string, _given: NewSchedule): void {}

  /** Checks a schedule as `upsert` does, without any database. @throws InvalidSchedule */
  check(id: string, given: NewSchedule): void {
    const problems: string[] = []
    if (typeof id !== 'string' || !/^[^\0]{1,200}$/.test(id)) {
      const got = typeof id === 'string' && id.length > 200 ? `${id.length} characters` : shown(id)
      problems.push(`id: expected a string of 1 to 200 characters, got ${got}`)
    }
    if (typeof given !== 'object' || given === null) {
      throw new InvalidSchedule(String(id), [`expected { task, cron, ... }, got ${String(given)}`])
    }
    problems.push(...unknownOptions(Object.keys(given), SCHEDULE_FIELDS, { noun: 'field' }))
    const read = readSchedule(given as unknown as Record<string, unknown>)
    if ('problems' in read) problems.push(...read.problems)
    if (problems.length > 0) throw new InvalidSchedule(String(id), problems)
    this.checkTask(id, given)
  }
}

/** Makes a schedule due, even one that a replica holds, and records the edit. */
function anew({ by, edit }: { by: string | undefined; edit: Omit<Edit, 'at' | 'by'> }, isDueNow = true): Document {
  const added = { $mergeObjects: [{ at: '$$NOW' }, literal(present({ ...edit, by }))] }
  const edits = { $cond: [{ $isArray: '$edits' }, '$edits', []] }
  return {
    $set: {
      phase: { $cond: [{ $in: ['$phase', SCHEDULE_PHASES] }, '$phase', 'Active'] },
      ...(isDueNow ? DUE_AND_NOBODYS : {}),
      edits: { $slice: [{ $concatArrays: [edits, [added]] }, -MOST_EDITS] },
    },
  }
}

/** A filter that judges `until` by the server's clock: a pause until a time in the past would be no pause. */
const stillToCome = ({ until }: PauseOptions): object => (until ? { $expr: { $gt: [until, '$$NOW'] } } : {})

function pausing(id: string, { until, reason, by }: PauseOptions, isDueNow: boolean): Document[] {
  if (until !== undefined && !(until instanceof Date && !Number.isNaN(until.getTime()))) {
    throw new InvalidSchedule(id, [`until: expected a date, got ${String(until)}`])
  }
  return [
    anew({ by, edit: present({ action: 'pause', reason }) }, isDueNow),
    { $set: { paused: { $mergeObjects: [{ at: '$$NOW' }, literal(present({ until, reason, by }))] } } },
  ]
}
