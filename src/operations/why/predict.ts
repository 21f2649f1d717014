import type { Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import {
  type CancelRequest,
  claimOf,
  ID_INDEX,
  idKey,
  operationWrites,
  ownerMeant,
  type Pause,
  readOwnFields,
  removalFilters,
  removalUpdate,
  unwrittenTo,
  writeStages,
} from '../../lock/index.js'
import { notifyingOf, type OwnerCall, type OwnerClient, workingPhases } from '../../phases/index.js'
import { asOwner, nameOf, whyNot } from '../act/as-owner.js'
import { requireKnownState } from '../act/owner.js'
import { requireOpenPhase, requireWorkingPhase } from '../act/phases-meant.js'
import { onSchedules } from '../act/schedules.js'
import { type DocumentRef, documentMeant, foundIn, holderOf } from '../inspect/find.js'
import { requireSeen, seenIn } from '../inspect/seen.js'
import { UsageError } from '../system/errors.js'
import { runsOf, type System } from '../system/system.js'
import { type Changes, changesOf } from './changes.js'
import type { Judged, SharedFacts } from './facts.js'
import { asStored, judge } from './judge.js'
import type { Verdict } from './term.js'

/** An action on one document, with its arguments. */
export type PredictedAction =
  | { readonly action: 'wake' }
  | { readonly action: 'unpark'; readonly by?: string | undefined; readonly force?: boolean | undefined }
  | { readonly action: 'set-state'; readonly state: string; readonly force?: boolean | undefined }
  | {
      readonly action: 'answer'
      readonly option: string
      readonly by?: string | undefined
      readonly reason?: string | undefined
      readonly question?: string | undefined
    }
  | { readonly action: 'remove'; readonly by?: string | undefined; readonly force?: boolean | undefined }
  | { readonly action: 'cancel'; readonly by?: string | undefined; readonly reason?: string | undefined }
  | { readonly action: 'pause'; readonly by?: string | undefined; readonly reason?: string | undefined }
  /** Of a pause of the document: of the person `of`; by default one's own, or the only one there is. `pause`: of this one, of whatever scope. */
  | {
      readonly action: 'resume'
      readonly by?: string | undefined
      readonly of?: string | undefined
      readonly pause?: Pause | undefined
    }
  | {
      readonly action: 'redo'
      readonly by?: string | undefined
      readonly phase?: string | undefined
      readonly step?: string | undefined
      readonly set?: Document | undefined
    }
  | { readonly action: 'migrate'; readonly by?: string | undefined; readonly phase: string }

/** The names of the actions that can be predicted. */
export const PREDICTED_ACTIONS = [
  'wake',
  'unpark',
  'set-state',
  'answer',
  'remove',
  'cancel',
  'pause',
  'resume',
  'redo',
  'migrate',
] as const satisfies readonly PredictedAction['action'][]
/** What an action can't do without. */
const NEEDS = { 'set-state': 'state', answer: 'option', migrate: 'phase' } as const

export type PredictRequest = PredictedAction & { readonly ref: DocumentRef; readonly seen?: string | undefined }

/** What an action would do, and what would come next. */
export interface Prediction extends Changes {
  readonly action: PredictedAction['action']
  readonly lifecycle: string
  /** Its `_id`. */
  readonly document: unknown
  /** `nothing`: the document would stay as it is. `refused`: so would it, and the action would fail. */
  readonly would: 'change' | 'nothing' | 'refused'
  /** For people: what it would do, or why it is refused. */
  readonly text: string
  /** The judgement of the result: what runs next, and what still stands in its way. Absent: nothing would be left of the document. */
  readonly why?: Verdict
  /** The digest of the document as it is now, to be given to the action itself. */
  readonly seen: string
}

/**
 * Predicts what an action would do to a document: the filter and the update of the action's very write, run as an aggregate. Nothing is written.
 * @example await predict(system, { action: 'unpark', ref: { id: '4711' } }) // { would: 'change', after: { lockedAt: 1970-01-01 }, why: { blockedBy: 'limit', ... }, seen }
 * @throws NotFound, UsageError; Refused if it is removed, or has changed since `seen`
 */
export async function predict(system: System, { ref, seen, ...request }: PredictRequest): Promise<Prediction> {
  const need = Object.entries(NEEDS).find(([action]) => action === request.action)?.[1]
  if (need !== undefined && (request as Document)[need] === undefined)
    throw new UsageError(`expected ${need} with the action ${request.action}, got none`)
  const found = await documentMeant(system, ref)
  await requireSeen(system, found, seen)
  return predictOn(await asStored(system, found), request)
}

/** The same for a document that was judged as it is stored. */
export async function predictOn(judged: Judged, request: PredictedAction, shared?: SharedFacts): Promise<Prediction> {
  const { system, found } = judged
  const outcome = await outcomeOf(judged, request)
  const { lifecycle, document } = found
  const about = { action: request.action, lifecycle, document: document['_id'] as unknown }
  const rest = { ...about, seen: seenIn(system, found) }
  if (outcome.kind === 'refused') {
    const { verdict } = await judge(judged, 0, shared)
    return { ...rest, would: 'refused', text: outcome.text, before: {}, after: {}, why: verdict }
  }
  if (outcome.kind === 'gone')
    return { ...rest, would: 'change', text: 'it would be deleted', before: document, after: {} }
  const changes = changesOf(document, outcome.judged.found.document)
  const names = Object.keys({ ...changes.before, ...changes.after })
  const would = outcome.isRequest || names.length > 0 ? 'change' : 'nothing'
  const text =
    outcome.isRequest ?? (would === 'change' ? `it would change ${names.join(', ')}` : 'nothing would change')
  return { ...rest, would, text, ...changes, why: (await judge(outcome.judged, 0, shared)).verdict }
}

type Outcome =
  /** `isRequest`: what it does, where it is no write to the document itself. */
  | { readonly kind: 'changed'; readonly judged: Judged; readonly isRequest?: string }
  | { readonly kind: 'gone' }
  | { readonly kind: 'refused'; readonly text: string }

async function outcomeOf(judged: Judged, request: PredictedAction): Promise<Outcome> {
  switch (request.action) {
    case 'cancel':
      return cancelled(judged, request)
    case 'pause':
    case 'resume':
      return paused(judged, request)
    case 'remove':
      return removed(judged, request)
    default: {
      const writes = await writesOf(judged, request)
      if (typeof writes === 'string')
        return { kind: 'refused', text: `it can't be ${request.action === 'redo' ? 'redone' : 'answered'}: ${writes}` }
      for (const stages of writes) {
        const after = await afterwards(judged, stages)
        if (after) return { kind: 'changed', judged: after }
      }
      return refusal(judged, request.action)
    }
  }
}

type Write = Exclude<PredictedAction, { action: 'cancel' | 'pause' | 'resume' | 'remove' }>

/** The pipelines of the action's writes, the first of which that matches is made. A string: why none is. */
async function writesOf(judged: Judged, request: Write): Promise<readonly (readonly Document[])[] | string> {
  const { system, model, found, inForce } = judged
  const id: unknown = found.document['_id']
  const { audit } = system
  const by = ('by' in request ? request.by : undefined) ?? audit?.by ?? 'owner'
  if (request.action === 'redo' || request.action === 'migrate') {
    const { phase } = request
    if (request.action === 'migrate') requireOpenPhase(model, phase)
    else requireWorkingPhase(model, phase)
    if (phase === undefined && !workingPhases(model).includes(found.document['phase']))
      return 'its phase has no handler: phase (--to-phase) says where it begins'
    const operating = { operation: request.action, by, where: {} }
    const [filter, update] =
      request.action === 'migrate'
        ? operationWrites.migrate(inForce.terms, id, operating, request.phase)
        : operationWrites.redo(inForce.terms, id, operating, { phase, step: request.step, set: request.set ?? {} })
    return [[{ $match: filter }, ...update]]
  }
  if (request.action === 'set-state' && request.force !== true) requireKnownState(model, request.state)
  const writes = await asOwner(system, model.name, (owner: OwnerClient) => owner.writesOf(id, callOf(request, by)))
  return typeof writes === 'string' ? writes : writes.map((write) => writeStages(id, write))
}

function callOf(request: Exclude<Write, { action: 'redo' | 'migrate' }>, by: string): OwnerCall {
  if (request.action === 'set-state') return { action: 'set-state', state: request.state }
  if (request.action !== 'answer') return { ...request, ...(request.action === 'unpark' && { by }) } as OwnerCall
  const { option, reason, question } = request
  return { action: 'answer', answer: { option, by, reason, question } }
}

/** Runs a write's filter and update as an aggregate: the document as the write would leave it. Undefined: it wouldn't match. */
async function afterwards(judged: Judged, stages: readonly Document[]): Promise<Judged | undefined> {
  const { system, model, inForce } = judged
  const pipeline = [...stages, { $project: { _id: 0, document: '$$ROOT', now: '$$NOW' } }]
  const collection = protocolCollection(system.db, model.collection)
  const [row] = await readOwnFields((how) => collection.aggregate(pipeline, { ...how, hint: ID_INDEX }).toArray())
  return row && { ...judged, stages, found: foundIn(model, inForce)({ document: row['document'], now: row['now'] }) }
}

function refusal({ system, found }: Judged, action: string): Outcome {
  const did = action === 'set-state' ? 'set to that state' : `${action === 'wake' ? 'woken' : `${action}ed`}`
  return { kind: 'refused', text: whyNot(system, unwrittenTo(found.document), found, did).message }
}

async function removed(judged: Judged, { by, force }: PredictedAction & { action: 'remove' }): Promise<Outcome> {
  const { system, model, found, inForce } = judged
  const notifying = notifyingOf(model)
  const of = { _id: found.document['_id'] as unknown, unlessHeld: force !== true }
  const { marked, deleted } = removalFilters(inForce.terms, notifying, of)
  const who = system.audit?.by ?? by ?? 'owner'
  const reason = system.audit?.reason ?? null
  if (marked && notifying) {
    const update = removalUpdate(inForce.terms, notifying, { by: who, reason })
    const after = await afterwards(judged, [{ $match: marked }, ...update])
    if (after) return { kind: 'changed', judged: after }
  }
  if (await afterwards(judged, [{ $match: deleted }])) return { kind: 'gone' }
  return { kind: 'refused', text: whyNot(system, 'held', found, 'removed without --force').message }
}

/**
 * A cancel is a request to the holder: what becomes of the document is up to its handler. A run of a schedule that waits for a document notes it.
 */
async function cancelled(
  judged: Judged,
  { by = 'owner', reason }: PredictedAction & { action: 'cancel' },
): Promise<Outcome> {
  const { found, inForce, system, model } = judged
  const { condition, document, lifecycle } = found
  const id: unknown = document['_id']
  if (typeof id === 'string' && lifecycle === runsOf(system.collections)) {
    const [filter, update] = await onSchedules(system, async (schedules) => schedules.cancelOf(id, { by, reason }))
    const after = await afterwards(judged, [{ $match: filter }, ...update])
    if (after) return { kind: 'changed', judged: after }
  }
  const claim = claimOf(holderOf(found, inForce.terms) ?? '')
  if (claim === undefined) {
    const name = nameOf({ lifecycle, _id: document['_id'] })
    return { kind: 'refused', text: `${name} can't be cancelled: no step of it runs (it is ${condition.kind})` }
  }
  const who = system.audit?.by ?? by
  const cancel: CancelRequest = { _id: document['_id'], claim, by: who, reason: reason ?? null }
  const cancels = [...inForce.cancels.filter((one) => one.claim !== claim), cancel]
  return {
    kind: 'changed',
    judged: withInForce(judged, model, { ...inForce, cancels }),
    isRequest: 'its step would be asked to stop, and the document parked unless its handler moves it on',
  }
}

/** A pause is none of the document's own fields. */
function paused(judged: Judged, request: PredictedAction & { action: 'pause' | 'resume' }): Outcome {
  const { found, inForce, system, model } = judged
  const { document, now } = found
  const by = system.audit?.by ?? request.by ?? 'owner'
  const isOwn = (one: Pause) => one.what === 'document' && idKey(one._id) === idKey(document['_id'])
  if (request.action === 'pause') {
    const { reason = null } = request
    const pause = { what: 'document', _id: document['_id'], by, reason, since: now, until: null } as const
    const pauses = [...inForce.pauses.filter((one) => !(isOwn(one) && one.by === by)), pause]
    return {
      kind: 'changed',
      judged: withInForce(judged, model, { ...inForce, pauses }),
      isRequest: 'no step of it would begin until it is resumed',
    }
  }
  const own = inForce.pauses.filter(isOwn)
  const owner = ownerMeant(
    own.map((one) => one.by),
    { by, of: request.of },
  )
  const ended = request.pause ?? own.find((one) => one.by === owner)
  if (!ended)
    return {
      kind: 'refused',
      text: `${nameOf({ lifecycle: found.lifecycle, _id: document['_id'] })} isn't paused as such`,
    }
  const pauses = inForce.pauses.filter((one) => one !== ended && !isSame(one, ended))
  return {
    kind: 'changed',
    judged: withInForce(judged, model, { ...inForce, pauses }),
    isRequest: `the pause by ${ended.by} would end`,
  }
}

const isSame = (one: Pause, other: Pause): boolean =>
  one.what === other.what && one.by === other.by && one.since.getTime() === other.since.getTime()

const withInForce = (judged: Judged, model: Judged['model'], inForce: Judged['inForce']): Judged => ({
  ...judged,
  inForce,
  found: foundIn(model, inForce)(judged.found),
})
