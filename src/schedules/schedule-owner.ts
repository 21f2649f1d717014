import type { Collection, Document, Filter } from 'mongodb'
import { isDuplicateKey, learnSharding } from '../database/index.js'
import { MOST_PAUSES, updateMatching } from '../lock/index.js'
import { shown, unknownOptions } from '../options/index.js'
import { changedFields, changesBetween, fieldsOf, runOf } from './decide.js'
import { bareNumbers, readSchedule } from './definition/read-schedule.js'
import { OWNERS_FIELDS, SCHEDULE_FIELDS, TIMING_FIELDS } from './definition/schedule-fields.js'
import { type Pause, present } from './documents.js'
import { anew, isPlanned, SUPERSEDED } from './edit-update.js'
import { InvalidSchedule, NoSuchSchedule } from './errors.js'
import {
  canPause,
  isMeant,
  isMeantOrNone,
  notPausable,
  notResumable,
  PAUSED,
  PAUSES_IN_FORCE,
  type PauseChange,
  pausing,
  resuming,
} from './pauses.js'
import { runCancel } from './run-cancel.js'
import { ScheduleBackfills } from './schedule-backfills.js'
import type {
  By,
  CancelRunOptions,
  NewSchedule,
  SchedulePauseOptions,
  ScheduleResumeOptions,
  TriggerOptions,
} from './schedule-owner-options.js'
import { requireId, type StoredSchedule } from './schedule-reader.js'

const MOST_UPSERTS = 10
const literal = (value: unknown): Document => ({ $literal: value })

/**
 * The owner's methods of schedules, for any process; each is one conditional update in the database. A replica that holds a schedule
 * at this moment loses it, and the schedule is planned again.
 */
export abstract class ScheduleOwner extends ScheduleBackfills {
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
   * Nothing is run until it is resumed, or until `until`; due times in between are not made up for. Pauses of several people add up; one's own
   * earlier pause is replaced.
   * @returns the pauses in force before, and since
   * @throws NoSuchSchedule, InvalidSchedule
   */
  async pause(id: string, options: SchedulePauseOptions = {}): Promise<PauseChange> {
    requireId(id)
    const update = [
      anew({ by: options.by, edit: present({ action: 'pause', reason: options.reason }) }),
      ...pausing(id, options),
    ]
    const found = await this.editPauses(id, canPause(options), update)
    if (!found) throw notPausable(id, options, await this.pauses({ schedule: id, limit: MOST_PAUSES }))
    const { by, until, reason } = options
    const added = present({ until, reason, by, at: found.now })
    return { before: found.pauses, after: [...found.pauses.filter((one) => one.by !== by), added] }
  }

  /** Pauses all, also those that others have paused; one's own earlier pauses are replaced. @returns how many were paused */
  async pauseAll(options: SchedulePauseOptions = {}): Promise<number> {
    const running = { phase: { $nin: ['Finished', 'Broken'] }, ...canPause(options) } as object
    const edit = present({ action: 'pause', reason: options.reason })
    // They are not made due now: each is looked at when it is due. To look at a million at the same time would be wasted work.
    return this.updateAll(running, [anew({ by: options.by, edit }, false), ...pausing('(all)', options)])
  }

  /**
   * Ends one's own pause, or the only one there is, whoever asked for it; when the last one has ended it is planned from then on. One that was
   * deactivated is active again.
   * @returns the pauses in force before, and since
   * @throws NoSuchSchedule; PausedByOthers where none of several is one's own, nothing is changed then
   */
  async resume(id: string, { by, of }: ScheduleResumeOptions = {}): Promise<PauseChange> {
    requireId(id)
    const update = [
      anew({ by, edit: { action: 'resume' } }),
      {
        $set: {
          isActive: true,
          known: { $cond: [isPlanned, { $mergeObjects: ['$known', { isActive: true }] }, '$$REMOVE'] },
        },
      },
      ...resuming({ by, of }),
    ]
    const found = await this.editPauses(id, isMeantOrNone({ by, of }), update)
    if (!found) throw notResumable(id, await this.pauses({ schedule: id, limit: MOST_PAUSES }), { of })
    return { before: found.pauses, after: await this.pauses({ schedule: id, limit: MOST_PAUSES }) }
  }

  /** Ends a pause of each, as `resume` does, where there is one to end; what was deactivated stays deactivated. @returns of how many */
  async resumeAll({ by, of }: ScheduleResumeOptions = {}): Promise<number> {
    const update = [anew({ by, edit: { action: 'resume' } }), ...resuming({ by, of })]
    return this.updateAll({ ...PAUSED, ...isMeant({ by, of }) }, update)
  }

  /** The pauses that were in force; undefined: it doesn't match. @throws NoSuchSchedule */
  private async editPauses(
    id: string,
    which: Document,
    update: Document[],
  ): Promise<{ readonly pauses: readonly Pause[]; readonly now: Date } | undefined> {
    const found = await this.schedules.findOneAndUpdate({ _id: id, ...which } as object, update, {
      returnDocument: 'before',
      projection: { pauses: PAUSES_IN_FORCE, now: '$$NOW' },
    })
    if (found) return found as unknown as { readonly pauses: readonly Pause[]; readonly now: Date }
    if (!(await this.schedules.findOne({ _id: id }, { projection: { _id: 1 } }))) throw new NoSuchSchedule(id)
    return undefined
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
   * @param where only if the run also matches this. Default: whatever it is like
   * @returns true if it waits for a document
   * @example await schedules.cancelRun('nightly@2026-11-21T06:00:00.000Z', { by: 'anna', reason: 'stuck' }) // true
   */
  async cancelRun(runId: string, options: CancelRunOptions, where: Filter<Document> = {}): Promise<boolean> {
    requireId(runId)
    const [waits, update] = runCancel(runId, options)
    const { matchedCount } = await this.runDocuments.updateOne({ ...waits, $and: [where as never] }, update)
    if (matchedCount > 0) await this.ringFor(runId)
    return matchedCount > 0
  }

  /**
   * The write of `cancelRun`, to be predicted: its filter and its update.
   * @internal
   */
  cancelOf(runId: string, options: CancelRunOptions): readonly [filter: Document, update: Document[]] {
    return runCancel(runId, options)
  }

  /** Notifies listening replicas of a run that is due. */
  protected abstract ringFor(runId: string): Promise<void>

  /** Checks the task against those that this process knows. @throws InvalidSchedule */
  protected checkTask(_id: string, _given: NewSchedule): void {}

  /** Checks a schedule as `upsert` does, without any database. @throws InvalidSchedule */
  check(id: string, given: NewSchedule): void {
    const problems: string[] = []
    if (typeof id !== 'string' || !/^[^\0]{1,200}$/.test(id) || !id.isWellFormed()) {
      const got = typeof id === 'string' && id.length > 200 ? `${id.length} characters` : shown(id)
      problems.push(
        `id: expected a string of 1 to 200 characters, none of them NUL or half a character (a lone surrogate), got ${got}`,
      )
    }
    if (typeof given !== 'object' || given === null) {
      throw new InvalidSchedule(String(id), [`expected { task, cron, ... }, got ${String(given)}`])
    }
    problems.push(...unknownOptions(Object.keys(given), SCHEDULE_FIELDS, { noun: 'field' }))
    const fields = given as unknown as Record<string, unknown>
    const read = readSchedule(fields)
    problems.push(...bareNumbers(fields), ...('problems' in read ? read.problems : []))
    if (problems.length > 0) throw new InvalidSchedule(String(id), problems)
    this.checkTask(id, given)
  }
}
