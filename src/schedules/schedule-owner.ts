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

/** A schedule as code or a person writes it. */
export type NewSchedule = ScheduleFields

/** What all methods that edit schedules take. */
export interface By {
  /** Who does it, for the schedule's edits. */
  readonly by?: string | undefined
}

/** What `pause` and `pauseAll` take. */
export interface PauseOptions extends By {
  /** When it ends by itself. Default: when somebody resumes it. */
  readonly until?: Date | undefined
  /** Why, for people: kept in the schedule's `paused` and `edits`, and shown by runs that it skips. */
  readonly reason?: string | undefined
}

/** What `run` takes; `by` is kept in the run's `requestedBy`. */
export interface TriggerOptions extends By {
  /** In place of the schedule's own. */
  readonly args?: Json | undefined
}

/** What `cancelRun` takes. */
export interface CancelRunOptions {
  /** Who wants it to stop. */
  readonly by: string
  /** Why, for people: at most 500 characters. */
  readonly reason?: string | undefined
}

const MOST_UPSERTS = 10
/** Includes `paused: true`, written by hand: whatever `pauseOf` takes for a pause. */
const PAUSED = { paused: { $nin: [null, false, 0, ''] } }
const isPlanned = { $eq: [{ $type: '$known' }, 'object'] }
/** Of edits in a row the first one: from its `known` it was planned. */
const SUPERSEDED: Document = {
  $ifNull: ['$superseded', { $cond: [isPlanned, { fields: '$known', at: '$$NOW' }, '$$REMOVE'] }],
}
const literal = (value: unknown): Document => ({ $literal: value })

/**
 * What an owner of schedules does, from any process; each is one conditional update judged by the database. A replica that holds a
 * schedule at this moment loses it, and the schedule is looked at anew.
 */
export abstract class ScheduleOwner extends ScheduleReader {
  /**
   * Creates a schedule, or replaces the one with this id; its runs, its pause and (unless `isActive` is given) whether it is
   * active stay. The same again changes nothing.
   * @throws InvalidSchedule: nothing is stored
   */
  async upsert(id: string, given: NewSchedule, { by }: By = {}): Promise<'created' | 'replaced' | 'unchanged'> {
    this.check(id, given)
    for (let attempt = 1; ; attempt += 1) {
      const before = await this.schedules.findOne({ _id: id })
      // In the end it replaces whatever is stored: the last one to write wins.
      const done = await this.upsertOver(before, id, given, by, attempt < MOST_UPSERTS)
      if (done) return done
    }
  }

  /** Replaces what was read, if it is still the same; undefined: somebody was quicker, and it has to be read again. */
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
    // If replicas start together and declare the same schedule, one creates it, and of two edits neither is lost in the other.
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

  /** Runs in progress go on. */
  async remove(id: string): Promise<boolean> {
    requireId(id)
    return (await this.schedules.deleteMany({ _id: id })).deletedCount > 0
  }

  /**
   * Nothing is run until it is resumed, or until `until`; due times in between are not made up for.
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

  /** @returns how many were paused: those that were not paused already */
  async pauseAll(options: PauseOptions = {}): Promise<number> {
    const running = { phase: { $nin: ['Finished', 'Broken'] }, $nor: [PAUSED], ...stillToCome(options) } as object
    // Not looked at now: each is when it comes due; looking at a million at once would be work for nothing.
    return this.updateAll(running, pausing('(all)', options, false))
  }

  /** Plans it from now on; one that was deactivated is active again. @throws NoSuchSchedule */
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

  /** Resumes what was paused; what was deactivated stays deactivated. */
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
   * Has it run once, now, by a replica that knows its task; under the same lock as its scheduled runs, so it is Skipped while
   * one of them runs. Paused and inactive schedules run too.
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
   * Stops a run that waits for the document it has started: the step of that is asked to stop, and where none runs it is parked; then the run is
   * Failed, for `cancelled`. A run whose task works in a step of its own is cancelled as any step is.
   * @returns whether it waits for a document
   * @example await schedules.cancelRun('nightly@2026-11-21T06:00:00.000Z', { by: 'anna', reason: 'stuck' }) // true
   */
  async cancelRun(runId: string, { by, reason }: CancelRunOptions): Promise<boolean> {
    requireId(runId)
    const error = runErrorOf(new StepAborted('cancelled', cancelText({ by, reason: reason ?? null })))
    const stopping: RunDocument['stopping'] = { why: 'cancelled', by, reason: reason ?? null, error }
    const waits = { _id: runId, phase: 'Running', started: { $exists: true }, outcome: { $exists: false } } as const
    // Also one that a replica looks at just now: it loses it, and the run is looked at anew.
    const { matchedCount } = await this.runDocuments.updateOne(waits, [
      { $set: { stopping: { $ifNull: ['$stopping', literal(stopping)] }, ...DUE_AND_NOBODYS } },
    ])
    if (matchedCount > 0) await this.ringFor(runId)
    return matchedCount > 0
  }

  /**
   * What a backfill would run. Nothing is changed.
   * @throws NoSuchSchedule, InvalidBackfill
   */
  async previewBackfill(id: string, options: BackfillOptions): Promise<BackfillPreview> {
    return (await checkedBackfill(this.runDocuments, await this.withNow(id), options)).preview
  }

  /**
   * Begins to run each due time of a past range, the oldest first, by replicas that know the task: one at a time, or as many as
   * `concurrency` says. What is due meanwhile goes first; while the schedule is paused it begins nothing. A schedule has one at a time.
   * @returns the backfill; `backfillState` says how far it is
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
    // Also in place of one that a person has made unreadable.
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

  /** A schedule's latest backfill, and how far it is; undefined: it has none. @throws NoSuchSchedule */
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

  /** A backfill whose runs are gone, because somebody deleted them or a replica of an older version ended one, goes on. @throws NoSuchSchedule, InvalidBackfill */
  async resumeBackfill(id: string): Promise<void> {
    const state = await this.openBackfill(id)
    const open = (state.counts.Queued ?? 0) + (state.counts.Running ?? 0)
    const begun = await this.beginRuns(id, state, state.concurrency - open)
    if (begun > 0 || open > 0) return
    const allBegun = { $set: { 'backfill.allBegun': true } as object }
    await this.schedules.updateOne({ _id: id, 'backfill.id': state.id } as object, allBegun)
  }

  /** No further run of a backfill begins; those that run go on. @throws NoSuchSchedule, InvalidBackfill */
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

  /** As many as are to run at a time: one that another's end has begun meanwhile is that one's. */
  private async beginRuns(id: string, backfill: Backfill, most: number): Promise<number> {
    let begun = 0
    let after: Date | undefined
    while (begun < most) {
      const runs = await nextRuns(this.runDocuments, id, backfill, most - begun, after)
      if (runs.length === 0) break
      for (const run of runs) begun += await this.insertRun(run)
      after = runs.at(-1)!.scheduledFor // a run that is there is passed over, whatever it is
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

  /** Has replicas that listen look at a run that is due. */
  protected abstract ringFor(runId: string): Promise<void>

  /** @returns 0: there already is one with this id */
  protected abstract insertRun(run: NewRun): Promise<number>

  /** What this process knows of tasks. @throws InvalidSchedule */
  protected checkTask(_id: string, _given: NewSchedule): void {}

  /** What `upsert` checks of a schedule, without any database. @throws InvalidSchedule */
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

/** Makes a schedule due, even one that a replica holds, and records who did what. */
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

/** By the server's clock: a pause until a time that has passed would be no pause. */
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
