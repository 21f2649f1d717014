/** The functions that act on a system, as others call them: their arguments are checked, and what they refuse has one of three kinds. */
import type { Document } from 'mongodb'
import { t } from '../options/index.js'
import type { LifecycleModel } from '../phases/index.js'
import * as backfills from './act/backfills.js'
import * as callbacks from './act/callbacks.js'
import * as cancel from './act/cancel.js'
import * as lockTimeouts from './act/lock-timeout.js'
import * as locks from './act/locks.js'
import * as orphans from './act/orphans.js'
import * as owner from './act/owner.js'
import * as questions from './act/questions.js'
import * as regions from './act/regions.js'
import * as registrations from './act/registrations.js'
import * as schedules from './act/schedules.js'
import * as bulk from './bulk/operations.js'
import * as acknowledge from './causes/acknowledge.js'
import * as causesOf from './causes/causes.js'
import * as check from './check/check.js'
import * as foreground from './foreground.js'
import * as count from './inspect/count.js'
import * as find from './inspect/find.js'
import * as flow from './inspect/flow.js'
import * as limits from './inspect/limits.js'
import * as lists from './inspect/list.js'
import * as records from './inspect/records.js'
import * as replicas from './inspect/replicas.js'
import * as versions from './inspect/versions.js'
import * as pauses from './pauses/pause.js'
import * as status from './status/status.js'
import { type ArgumentTypes, aText, checkedCall } from './system/checked-call.js'
import * as predictions from './why/predict.js'
import * as shown from './why/show.js'
import * as whys from './why/why.js'

const text = t.optional(aText)
const flag = t.optional(t.flag)
const date = t.optional(t.aDate)
const aName = t.checked(aText, (value) => value !== '', 'expected a name, got an empty string')
const fields = t.where<Document>(
  (value) => Object.prototype.toString.call(value) === '[object Object]' && !('_bsontype' in (value as object)),
  t.expecting('an object with fields'),
)
const upTo = (most: number) => t.optional(t.whole(1, most))
const mayBe = (types: t.Fields) => t.optional(t.partOf(types))

const models = t.list(
  t.where<LifecycleModel>((value) => Object(value).phases instanceof Map, t.expecting('the model of a lifecycle')),
  t.expecting('a list of lifecycles'),
)
const onDatabase = ['system', t.partOf({ db: t.aDatabase })] as const
const onSystem = ['system', t.partOf({ db: t.aDatabase, models })] as const
const ref = ['ref', t.partOf({ id: aText, lifecycle: text })] as const
const named = (name: string) => [name, aName] as const
const options = (types: t.Fields) => ['options', mayBe(types)] as const
const request = (types: t.Fields) => ['request', t.partOf(types)] as const

const SEEN = { seen: text }
const FRESH = { fresh: flag, takeMissing: flag }
const FORCE = { force: flag, ...SEEN }
const BY = { by: aText, reason: text }
const WAIT = t.whole(0, 24 * 3_600_000)
/** The scope of a pause or of its end. */
const SCOPE = { lifecycle: text, phase: text, id: text, limit: text, key: text }
const RECORDS = { id: text, lifecycle: text, since: date, until: date, limit: upTo(10_000) }
const TROUBLE = { parked: flag, bugs: flag, failing: flag, waiting: flag, on: text }
const AN_OPERATION = request({
  ...{ id: text, action: aText, by: aText, reason: text, cause: text },
  selection: t.partOf({
    lifecycle: aText,
    filter: t.optional(fields),
    phase: text,
    state: text,
    cause: text,
    all: flag,
    ...TROUBLE,
  }),
  options: mayBe({ state: text, force: flag, phase: text, step: text, set: t.optional(fields) }),
  ...{
    first: t.optional(t.aNumber),
    watch: text,
    atMost: t.optional(t.aNumber),
    rate: t.optional(t.aNumber),
    concurrency: t.optional(t.aNumber),
  },
})
const backfill = (by: t.Type) =>
  ['options', t.partOf({ from: t.aDate, to: date, again: text, overlap: text, by, reason: text })] as const
const lockStore = [
  'locks',
  t.having(['list', 'find', 'release'], 'the store of named locks, as openLockProvider returns it'),
] as const
const clusters = { kubeconfig: text }

/** For arguments of which nothing has to hold, because the function itself judges them. */
const anything = (name: string) => [name, t.anything()] as const

const of = <A extends readonly unknown[], T>(act: (...given: A) => Promise<T>, ...types: ArgumentTypes) =>
  checkedCall(act.name, types, act)

export const previewBackfill = of(backfills.previewBackfill, onSystem, named('schedule'), backfill(text))
export const beginBackfill = of(backfills.beginBackfill, onSystem, named('schedule'), backfill(text))
export const listBackfills = of(backfills.listBackfills, onSystem, options({ schedule: text, limit: upTo(10_000) }))
export const resumeBackfill = of(backfills.resumeBackfill, onSystem, named('schedule'))
export const abortBackfill = of(backfills.abortBackfill, onSystem, named('schedule'), named('by'))

export const listUndelivered = of(callbacks.listUndelivered, onSystem, ['lifecycle', text], ['limit', upTo(10_000)])
export const retryCallbacks = of(callbacks.retryCallbacks, onSystem, ref, options({ skip: flag }))

export const cancelStep = of(cancel.cancelStep, onSystem, ref, request({ ...BY, ...SEEN, waitMs: WAIT }))
export const setLockTimeout = of(lockTimeouts.setLockTimeout, onSystem, named('lifecycle'), named('lockTimeout'))

export const listLocks = of(locks.listLocks, lockStore, ['all', flag])
export const heldLock = of(locks.heldLock, lockStore, named('name'))
export const releaseLock = of(locks.releaseLock, lockStore, ['seen', t.partOf({ name: aName })])

export const findOrphans = of(
  orphans.findOrphans,
  onSystem,
  options({
    ...{ ...clusters, remove: flag, olderThan: text, ended: flag, empty: flag },
    ...{ regions: t.optional(t.list(aName, t.expecting('a list of regions'))) },
    ...{ namespaces: t.optional(t.list(aName, t.expecting('a list of namespaces'))) },
  }),
)

export const addDocument = of(owner.addDocument, onSystem, named('lifecycle'), ['fields', fields], options(FORCE))
export const setState = of(owner.setState, onSystem, ref, ['state', aText], options(FORCE))
export const wakeDocument = of(owner.wakeDocument, onSystem, ref, options(SEEN))
export const unparkDocument = of(owner.unparkDocument, onSystem, ref, request({ by: aText, ...FORCE }))
export const removeDocument = of(owner.removeDocument, onSystem, ref, options(FORCE))

export const listQuestions = of(questions.listQuestions, onSystem, options({ lifecycle: text, to: text }))
export const answerQuestion = of(
  questions.answerQuestion,
  onSystem,
  ref,
  request({ option: aText, question: text, ...BY, ...SEEN }),
)

export const listRegions = of(regions.listRegions, onSystem, options(clusters))
export const removeRegion = of(regions.removeRegion, onSystem, named('name'), options(FORCE))

export const listRegistrations = of(registrations.listRegistrations, onDatabase)
export const forgetLifecycle = of(registrations.forgetLifecycle, onDatabase, named('name'))

export const listSchedules = of(schedules.listSchedules, onSystem, options({ limit: upTo(10_000), phase: text }))
export const setSchedule = of(schedules.setSchedule, onSystem, named('id'), anything('fields'), named('by'))
export const pauseSchedules = of(
  schedules.pauseSchedules,
  onSystem,
  ['id', text],
  ['pause', t.partOf({ ...BY, until: date })],
)
export const listSchedulePauses = of(schedules.listSchedulePauses, onSystem, ['id', text])
export const resumeSchedules = of(schedules.resumeSchedules, onSystem, ['id', text], named('by'), ['of', text])
export const removeSchedule = of(schedules.removeSchedule, onSystem, named('id'))
export const listRuns = of(
  schedules.listRuns,
  onSystem,
  named('schedule'),
  options({ phase: text, limit: upTo(10_000), timezone: text }),
)
export const startRun = of(schedules.startRun, onSystem, named('schedule'), request({ by: aText }))
export const waitForRun = of(schedules.waitForRun, onSystem, named('name'), ['atMostMs', WAIT])

export const previewOperation = of(bulk.previewOperation, onSystem, AN_OPERATION)
export const beginOperation = of(bulk.beginOperation, onSystem, AN_OPERATION)
export const listOperations = of(
  bulk.listOperations,
  onDatabase,
  options({ id: text, limit: upTo(10_000), open: flag }),
)
export const operationNamed = of(bulk.operationNamed, onDatabase, named('id'))
export const abortOperation = of(bulk.abortOperation, onDatabase, named('id'))
export const previewUndo = of(bulk.previewUndo, onDatabase, named('id'))
export const undoOperation = of(bulk.undoOperation, onDatabase, named('id'), request(BY))
export const workOnOperations = of(
  foreground.workOnOperations,
  onDatabase,
  ['ids', t.list(aName, t.expecting('a list of ids'))],
  anything('options'),
)

export const causes = of(causesOf.causes, onSystem, options(FRESH))
export const causeNamed = of(causesOf.causeNamed, onSystem, named('id'))
export const ackCause = of(
  acknowledge.ackCause,
  onSystem,
  named('id'),
  request({ by: aText, until: anything('until')[1], note: text }),
)
export const unackCause = of(acknowledge.unackCause, onSystem, named('id'))

export const checkDatabase = of(check.checkDatabase, ['options', t.partOf({ db: t.aDatabase, models, repair: flag })])

export const censusFor = of(count.censusFor, onSystem, options(FRESH))
export const countPhases = of(count.countPhases, onSystem, options(FRESH))
export const findDocument = of(find.findDocument, onSystem, ref)
export const showDocument = of(shown.showDocument, onSystem, ref)
export const listDocuments = of(
  lists.listDocuments,
  onSystem,
  options({
    ...{ lifecycle: text, phase: text, state: text, limit: upTo(10_000), ...TROUBLE },
    ...{ condition: text, cause: text, key: text, olderThan: text, filter: t.optional(fields), after: text },
    ...{ order: t.optional(t.oneOf(['oldest', 'newest'])), payload: flag },
  }),
)
export const versionsMixed = of(versions.versionsMixed, onSystem)
export const readFlow = of(
  flow.readFlow,
  ['db', t.aDatabase],
  request({ lifecycle: aName, minutes: upTo(1_440), hours: upTo(720) }),
)
export const listLimits = of(limits.listLimits, onSystem, options({ keys: flag }))
export const listAudit = of(records.listAudit, onSystem, options({ ...RECORDS, by: text, action: text }))
export const listEvents = of(records.listEvents, onSystem, options({ ...RECORDS, replica: text, outcome: text }))
export const listReplicas = of(replicas.listReplicas, onSystem, options({ name: text, deadAfter: text }))

export const listPauses = of(pauses.listPauses, onSystem, ['lifecycle', text])
export const pauseWork = of(pauses.pauseWork, onSystem, request({ ...SCOPE, ...BY, ...SEEN, until: date, for: text }))
export const resumeWork = of(pauses.resumeWork, onSystem, request({ ...SCOPE, by: text, of: text }))

export const operationsOpen = of(status.operationsOpen, onDatabase)
export const systemStatus = of(status.systemStatus, onSystem, options(FRESH))

export const whyDocument = of(whys.whyDocument, onSystem, ref)
export const predict = of(
  predictions.predict,
  onSystem,
  request({
    ...{
      action: t.oneOf(predictions.PREDICTED_ACTIONS),
      ref: ref[1],
      ...FORCE,
      by: text,
      reason: text,
      question: text,
    },
    ...{ state: text, option: text, phase: text, step: text, set: t.optional(fields), pause: t.optional(fields) },
  }),
)
