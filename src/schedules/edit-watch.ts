import { type Collection, type Db, type Document, MinKey } from 'mongodb'
import { protocolCollection } from '../database/index.js'
import {
  onClaimIndex,
  PARKED_AT,
  perUpdate,
  STEP_SLACK_MS,
  TASK_LOCK_INIT_TIME,
  updateNamed,
  WITHOUT_TOKEN,
} from '../lock/index.js'
import { type Alongside, type BoundLifecycle, lifecycleOf, type Step } from '../phases/index.js'
import { formatMs, sleep } from '../time/index.js'
import { SCHEDULE_PHASES } from './decide.js'
import { OWNERS_FIELDS } from './definition/schedule-fields.js'
import type { ScheduleDocument } from './documents.js'
import type { SchedulesSettings } from './options.js'
import type { Workplace } from './workplace.js'

const WATCH_ID = 'edits'
export const watchNameOf = ({ collections }: SchedulesSettings): string => `${collections.schedules}.watch`

/** The position of the walk over the schedules. One document: one replica walks at a time. */
export interface WatchDocument {
  _id: string
  /** The `_id` after which the walk continues. */
  position?: unknown
}

/**
 * Finds schedules that were edited in the database: their fields differ from what Phaselock last saw (`known`). They are made due, so that
 * a replica looks at them. It walks over all schedules forever, in chunks of bounded size. A schedule that wasn't edited is only read, by
 * the server itself. Those without a phase, or with an unknown one, are found by the index each time, wherever the walk is.
 */
export function editWatch({
  settings,
  schedules,
}: Pick<Workplace, 'settings' | 'schedules'>): BoundLifecycle<WatchDocument> {
  const name = watchNameOf(settings)
  const { watchPerSecond, lockTimeout } = settings
  const definition = lifecycleOf<WatchDocument>().define({
    name,
    collection: name,
    phases: { Watching: { next: ['Ended'], entry: true }, Ended: { final: true } },
    lockTimeout,
    maxAttempts: 1_000,
    maxClaims: 1_000,
  })
  return definition.handle({
    Watching: async (doc, step: Step<'Ended', WatchDocument>) => {
      const { last, seen } = await noticeEdits(schedules(), doc.position ?? null, watchPerSecond)
      const position = seen < watchPerSecond ? null : last
      return step.wait('edits made in the database', { for: '1s', set: { position } })
    },
  }) as unknown as BoundLifecycle<WatchDocument>
}

/** True if the pause was removed by hand, or now ends earlier; no replica would have looked at it while it lasted. */
const isResumed: Document = {
  $and: [
    { $eq: ['$phase', 'Paused'] },
    { $ne: ['$isActive', false] },
    {
      $or: [
        { $in: [{ $ifNull: ['$paused', false] }, [false, 0, '']] },
        { $and: [{ $eq: [{ $type: '$paused.until' }, 'date'] }, { $lte: ['$paused.until', '$$NOW'] }] },
      ],
    },
  ],
}

const PHASES = [...SCHEDULE_PHASES, 'Removed']
const isNew: Document = { $in: [{ $type: '$phase' }, ['missing', 'null']] }
/** True if a schedule is in an unknown phase: no replica would look at it. */
const isMisnamed: Document = {
  $and: [
    { $not: [{ $in: [{ $type: '$phase' }, ['missing', 'null', 'array', 'object']] }] },
    { $not: [{ $in: ['$phase', PHASES] }] },
  ],
}
const WRONG_PHASE = 'phase: expected Active or none, as Phaselock sets it (to pause, use isActive or paused); got '

const plannedAt: Document = {
  $cond: [{ $isArray: '$progress.history.at' }, { $arrayElemAt: ['$progress.history.at', -1] }, null],
}
/** True if the server's clock has stepped back since it was planned. */
const isPlannedAhead: Document = {
  $and: [
    { $eq: ['$phase', 'Active'] },
    { $eq: [{ $type: plannedAt }, 'date'] },
    { $gt: [plannedAt, { $add: ['$$NOW', STEP_SLACK_MS] }] },
  ],
}

const isEdited: Document = {
  $or: [
    isPlannedAhead,
    // It was misnamed, and was corrected.
    { $and: [{ $eq: ['$phase', 'Active'] }, { $eq: [{ $type: '$broken' }, 'string'] }] },
    { $and: [{ $eq: [{ $type: '$known' }, 'object'] }, { $ne: ['$known', OWNERS_FIELDS] }] },
    isResumed,
  ],
}

const ifMisnamed = (then: unknown, otherwise: unknown): Document => ({ $cond: ['$isMisnamed', then, otherwise] })
/** The update that makes it due now; a misnamed one is broken until it is edited. */
const LOOKED_AT: Document = {
  lockedAt: ifMisnamed(PARKED_AT, TASK_LOCK_INIT_TIME),
  phase: ifMisnamed('Broken', { $ifNull: ['$phase', 'Active'] }),
  known: ifMisnamed({ $ifNull: ['$known', OWNERS_FIELDS] }, '$known'),
  broken: ifMisnamed(
    { $concat: [WRONG_PHASE, { $convert: { input: '$phase', to: 'string', onError: 'another type' } }] },
    '$broken',
  ),
}

/** Walks one chunk after `position`, and looks at up to `chunk` schedules without a known phase. */
export async function noticeEdits(
  schedules: Collection<ScheduleDocument>,
  position: unknown,
  chunk: number,
): Promise<{ last: unknown; seen: number; noticed: number }> {
  const [walked, unplanned] = await Promise.all([walk(schedules, position, chunk), withoutPhase(schedules, chunk)])
  const found = [...walked.edited, ...unplanned]
  if (found.length > 0) {
    // Never one that is held: its holder is looking at it. If that replica read it before the edit, the next walk finds it again.
    const update = [{ $set: { isMisnamed } }, { $set: LOOKED_AT }, { $unset: 'isMisnamed' }]
    const documents = schedules as unknown as Collection
    const updates = perUpdate(documents, found).map((ids) => {
      return { ids, filter: { _id: { $in: ids as never[] }, ...WITHOUT_TOKEN }, update }
    })
    await updateNamed(documents, updates)
  }
  return { last: walked.last, seen: walked.seen, noticed: found.length }
}

async function walk(schedules: Collection<ScheduleDocument>, position: unknown, chunk: number) {
  const [walked] = await schedules
    .aggregate<{ last: unknown; seen: number; edited: unknown[] }>(
      [
        // With $expr: a plain $gt would end with the last _id of the position's own type, and those of later types would never be seen.
        { $match: { $expr: { $gt: ['$_id', { $literal: position ?? new MinKey() }] } } },
        { $sort: { _id: 1 } },
        { $limit: chunk },
        { $project: { isEdited } },
        {
          $group: {
            _id: null,
            last: { $max: '$_id' },
            seen: { $sum: 1 },
            edited: { $push: { $cond: ['$isEdited', '$_id', '$$REMOVE'] } },
          },
        },
      ],
      { hint: { _id: 1 }, maxTimeMS: 10_000 },
    )
    .toArray()
  return walked ?? { last: null, seen: 0, edited: [] }
}

/**
 * The schedules without a known phase. It takes a few seeks in the gaps between the phases, regardless of the number of schedules and of
 * their `_id`s.
 */
async function withoutPhase(schedules: Collection<ScheduleDocument>, most: number): Promise<unknown[]> {
  const pipeline = [
    { $match: { phase: { $nin: PHASES }, ...WITHOUT_TOKEN } },
    { $match: { $expr: { $or: [isNew, isMisnamed] } } },
    { $limit: most },
    { $project: { _id: 1 } },
  ]
  const found = await onClaimIndex(schedules, (hint) =>
    schedules.aggregate<{ _id: unknown }>(pipeline, { hint, maxTimeMS: 10_000 }).toArray(),
  )
  return found.map(({ _id }) => _id)
}

const AGAIN_MS = 60_000

/** Creates the document that walks again if it was removed: edits would go unnoticed until a replica starts. */
export function keepWatch(settings: SchedulesSettings, everyMs = AGAIN_MS): Alongside {
  return async ({ db, signal, logger }) => {
    for (;;) {
      await sleep(everyMs, { signal, unref: true })
      if (signal.aborted) return
      try {
        if (!(await startWatch(db, settings))) continue
        logger.warn(
          `somebody has removed the document of ${watchNameOf(settings)}, which notices edits: it is there again`,
        )
      } catch (error) {
        logger.debug(`${watchNameOf(settings)}: ${String(error)}; tried again in ${formatMs(everyMs)}`)
      }
    }
  }
}

/**
 * Creates the document that walks, if there is none yet.
 * @returns true if it was created
 */
export async function startWatch(db: Db, settings: SchedulesSettings): Promise<boolean> {
  const { upsertedCount } = await protocolCollection<{ _id: string }>(db, watchNameOf(settings)).updateOne(
    { _id: WATCH_ID },
    { $setOnInsert: { phase: 'Watching' } },
    { upsert: true },
  )
  return upsertedCount > 0
}
