import { randomBytes } from 'node:crypto'
import type { Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { readOwnFields } from '../../lock/index.js'
import { didYouMean, numbered } from '../../options/index.js'
import { DocumentExists, type LifecycleModel, OwnerClient } from '../../phases/index.js'
import { systemClock } from '../../time/index.js'
import { asOwner } from '../act/as-owner.js'
import { type Found, readDocuments } from '../inspect/find.js'
import { recorded } from '../system/audit.js'
import { NotFound, Refused, UsageError } from '../system/errors.js'
import { modelOf, type System } from '../system/system.js'
import { actions } from './actions.js'
import { countChanges, prepareChanges } from './changes.js'
import {
  ACTIONS,
  NO_COUNTS,
  OPERATION_LIFECYCLE,
  OPERATIONS_COLLECTION,
  type OperationAction,
  type OperationDocument,
  operationDefinition,
} from './operation.js'
import type { OperationPreview } from './preview.js'
import { blastRadius } from './radius.js'
import type { ActionOptions, OperationRequest } from './request.js'
import { CAUSE, countMatching, fromStoredText, selectionFilter, storedText } from './selection.js'
import { requireTrial, trialOf } from './trial-request.js'

const DEFAULT_AT_MOST = 10_000
const OPERATION_ID = /^[a-z\d][\w.-]{0,99}$/i
const EXAMPLES = 5

/** The highest allowed values. */
export const MOST = { atMost: 100_000_000, rate: 100_000, concurrency: 100 } as const

interface Checked {
  readonly action: OperationAction
  readonly model: LifecycleModel
  readonly filter: Document
  readonly options: Document
  readonly atMost: number
}

/**
 * Counts the documents that an operation would act on, shows a few of them, and predicts what becomes of them. Nothing is changed. Besides the count it
 * reads 1,000 of them at most, chosen among 100,000.
 * @example await previewOperation(system, { action: 'wake', selection: { lifecycle: 'order', phase: 'Packing' }, by: 'ana' }) // { count: 1_204, examples: [...], ... }
 * @throws UsageError for an unknown action, lifecycle, phase or option, a filter that can't be used, or if more match than `atMost`
 */
export async function previewOperation(system: System, request: OperationRequest): Promise<OperationPreview> {
  const checks = await checked(system, request)
  const preview = await previewed(system, checks)
  const { model, filter, options } = checks
  return { ...preview, radius: await blastRadius(system, request, { model, filter, options, count: preview.count }) }
}

type Previewed = Omit<OperationPreview, 'radius'>

async function previewed(system: System, { action, model, filter, atMost }: Checked): Promise<Previewed> {
  const count = await countMatching(system.db.collection(model.collection), filter, atMost)
  if (count > atMost)
    throw new UsageError(
      `expected at most ${numbered(atMost, 'document')} of ${model.name} to match, got more; nothing was changed`,
      undefined,
      'narrow the filter, or say how many there may be (atMost, or --at-most)',
    )
  return { action, lifecycle: model.name, count, examples: await readDocuments(system, model, filter, EXAMPLES) }
}

async function checked(system: System, { action, selection, ...request }: OperationRequest): Promise<Checked> {
  const options = given(request.options)
  const { id, atMost = DEFAULT_AT_MOST, rate = 1_000, concurrency = 8 } = request
  if (!isAction(action))
    throw new UsageError(`expected an action (${ACTIONS.join(', ')}), got '${action}'${didYouMean(action, ACTIONS)}`)
  for (const [name, value] of Object.entries({ atMost, rate, concurrency }) as [keyof typeof MOST, number][])
    if (!Number.isSafeInteger(value) || value < 1 || value > MOST[name])
      throw new UsageError(`${name}: expected a whole number from 1 to ${MOST[name]}, got ${value}`)
  if (id !== undefined && !OPERATION_ID.test(id))
    throw new UsageError(`id: expected a letter or digit, then up to 99 more, '.', '_' or '-', got '${id}'`)
  requireTrial(action, request)
  if (request.cause !== undefined && !CAUSE.test(request.cause))
    throw new UsageError(`cause: expected the id of a cause, 12 hex digits, got '${request.cause}'`)
  const model = modelOf(system, selection.lifecycle)
  if (model.name === OPERATION_LIFECYCLE) throw new UsageError('expected a lifecycle other than that of operations')
  const unknown = Object.keys(options).find((name) => !actions[action].takes.includes(name))
  if (unknown !== undefined)
    throw new UsageError(
      `${action}: unknown option '${unknown}' (--${FLAGS[unknown] ?? unknown}); known: ${actions[action].takes.join(', ') || 'none'}`,
    )
  actions[action].check(model, options)
  const filter = await selectionFilter(system.db, model, selection, actions[action].anyPhase)
  return { action, model, filter, options, atMost }
}

/** The command-line names of an action's options, if they differ. */
const FLAGS: Readonly<Record<string, string>> = { state: 'to-state', phase: 'to-phase', step: 'to-step' }

/** The options without undefined values, which would be stored as null. */
const given = (options: ActionOptions = {}): Document =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined))

const isAction = (name: string): name is OperationAction => (ACTIONS as readonly string[]).includes(name)

/**
 * Begins an operation: a document in `phaselock.operations`, which replicas of its lifecycle work on.
 * @example await beginOperation(system, { action: 'wake', selection: { lifecycle: 'order', phase: 'Packing' }, by: 'ana' }) // { _id: 'wake-4f2a9c1b', expected: 1_204, ... }
 * @throws as `previewOperation`; Refused if its id is taken, NotFound if nothing matches
 */
export async function beginOperation(system: System, request: OperationRequest): Promise<OperationDocument> {
  const checks = await checked(system, request)
  const { filter, atMost } = checks
  const cause = request.cause ?? request.selection.cause
  const { id = `${request.action}-${randomBytes(4).toString('hex')}` } = request
  // Checked first: an operation that is done may have left no document that matches.
  if (request.id !== undefined && (await listOperations(system, { id })).operations.length > 0) throw existsAlready(id)
  const { action, lifecycle, count } = await previewed(system, checks)
  if (count === 0) throw new NotFound(`no document of ${lifecycle} matches: there is nothing to ${action}`)
  const document: OperationDocument = {
    _id: id,
    ...{ action, lifecycle, filter: storedText(filter), options: storedText(given(request.options)) },
    ...{ by: request.by, why: request.reason ?? null, atMost, rate: request.rate ?? 1_000 },
    ...(cause !== undefined && { cause }),
    ...trialOf(request),
    ...{ concurrency: request.concurrency ?? 8, expected: count, counts: NO_COUNTS, troubles: [], workedMs: 0 },
  }
  const { _id } = document
  if (actions[action].changes) await prepareChanges(system.db)
  const about = { action: `operations run ${action}`, target: `operation ${_id}`, lifecycle }
  const after = { filter: document.filter.slice(0, 2_000), options: document.options.slice(0, 1_000), matching: count }
  await recorded(
    system,
    about,
    () => insert(system, document),
    () => ({ outcome: 'done', after }),
  )
  return document
}

/** Counts the documents to look at to undo an operation. @throws NotFound; Refused if it can't be undone, or has not ended */
export async function previewUndo(
  system: System,
  id: string,
): Promise<{ readonly of: OperationState; readonly count: number }> {
  const of = await operationNamed(system, id)
  if (of.condition !== 'Done' && of.condition !== 'Aborted')
    throw new Refused(
      `operation ${id} has not ended: it is ${of.condition}`,
      undefined,
      `abort it first: phaselock operations abort ${id}`,
    )
  if (!actions[of.action].changes)
    throw new Refused(`operation ${id} can't be undone: ${of.action} leaves nothing to put back`)
  return { of, count: await countChanges(system.db, id) }
}

/**
 * Begins to undo an operation. A document is restored if that operation was the last to act on it, no step of it has begun since, and the
 * values that the operation set still stand. Others are left alone.
 * @example await undoOperation(system, 'unpark-4f2a9c1b', { by: 'ana' }) // { _id: 'undo-unpark-4f2a9c1b', expected: 1_201, ... }
 * @throws NotFound; Refused if it can't be undone, has not ended, or is being undone already
 */
export async function undoOperation(
  system: System,
  id: string,
  { by, reason }: Pick<OperationRequest, 'by' | 'reason'>,
): Promise<OperationDocument> {
  const { of, count } = await previewUndo(system, id)
  const { lifecycle, action, options, rate, concurrency } = of
  if (count === 0) throw new NotFound(`operation ${id} has changed nothing that could be undone`)
  const undone = { of: id, action, options: fromStoredText(options) }
  const document: OperationDocument = {
    ...{ _id: `undo-${id}`, action: 'undo', lifecycle, filter: '{}', options: storedText(undone) },
    ...{ by, why: reason ?? null, atMost: count, rate, concurrency, expected: count },
    ...{ counts: NO_COUNTS, troubles: [], workedMs: 0 },
  }
  const about = { action: 'operations undo', target: `operation ${id}`, lifecycle }
  await recorded(system, about, () => insert(system, document))
  return document
}

const existsAlready = (id: string): Refused =>
  new Refused(
    `operation ${id} exists already`,
    { reason: 'exists', lifecycle: OPERATION_LIFECYCLE, id },
    `see: phaselock operations show ${id}`,
  )

async function insert(system: System, document: OperationDocument): Promise<void> {
  const owner = new OwnerClient(system.db, operationDefinition.model, { doorbell: system.doorbell })
  try {
    // A replica sets it when it first works on it: until then the operation would be listed behind all others.
    await owner.insert({ ...document, createdAt: systemClock.now() } as never)
  } catch (error) {
    if (!(error instanceof DocumentExists)) throw error
    throw existsAlready(document._id)
  } finally {
    await owner.flush()
  }
}

/** An operation and its progress. */
export interface OperationState extends OperationDocument {
  /** `Parked`: it could not continue, and waits for a person; `Waiting`: no process works on it now. */
  readonly condition: 'Running' | 'Waiting' | 'Parked' | 'Done' | 'Aborted'
  /** The reason why it waits or is parked. */
  readonly problem: string | undefined
  /** The token of the process that works on it. */
  readonly worker: string | undefined
  /** The rest of that process's lease; if the process was killed, others are kept out until then. */
  readonly leaseLeftMs: number | undefined
  /** When it was started. */
  readonly createdAt: Date | undefined
  /** Documents per second of the time that it was worked on; undefined if that time is too short for a rate. */
  readonly perSecond: number | undefined
  /** The estimated time that the rest takes at that rate. */
  readonly leftMs: number | undefined
}

/**
 * Operations, the newest first; ended ones are kept for a month.
 * @example await listOperations(system) // { operations: [{ _id: 'wake-4f2a9c1b', condition: 'Running', counts: { seen: 400, ... }, perSecond: 912, leftMs: 880 }], now }
 */
export async function listOperations(
  { db }: System,
  {
    id,
    limit = 50,
    open = false,
  }: {
    readonly id?: string | undefined
    readonly limit?: number | undefined
    /** If true, only those that haven't ended. */
    readonly open?: boolean | undefined
  } = {},
): Promise<{ readonly operations: readonly OperationState[]; readonly now: Date | undefined }> {
  const { name, settings } = operationDefinition.model
  const system: System = { db, models: [operationDefinition.model] }
  const filter = { ...(id !== undefined && { _id: id as never }), ...(open && { phase: 'Running' }) }
  const found = await readOwnFields((how) =>
    protocolCollection(db, OPERATIONS_COLLECTION)
      .find(filter, { projection: { _id: 1 }, sort: { createdAt: -1 }, limit, ...how })
      .toArray(),
  )
  const ids = found.map(({ _id }) => _id)
  if (ids.length === 0) return { operations: [], now: undefined }
  const all = await readDocuments(system, modelOf(system, name), { _id: { $in: ids as never[] } }, limit)
  const byId = new Map(all.map((one) => [one.document['_id'], one]))
  const states = ids.flatMap((one) => byId.get(one) ?? []).map((one) => stateOf(one, settings.progress))
  return { operations: states, now: all[0]?.now }
}

/** The shortest time for which a rate is meaningful. */
const LEAST_WORKED_MS = 50

function stateOf({ document, condition, why, now }: Found, progress: string): OperationState {
  const operation = document as unknown as OperationDocument & { phase: string; createdAt?: Date }
  const { counts = NO_COUNTS, workedMs, expected, phase } = operation
  const perSecond = workedMs >= LEAST_WORKED_MS ? (counts.seen / workedMs) * 1_000 : undefined
  const kind = condition.kind
  const isOpen = phase === 'Running'
  const since = (document[progress] as Document | undefined)?.['since']
  return {
    ...operation,
    condition: !isOpen ? (phase as 'Done') : kind === 'held' ? 'Running' : kind === 'parked' ? 'Parked' : 'Waiting',
    problem: isOpen && kind !== 'held' ? why : undefined,
    worker: kind === 'held' ? condition.by : undefined,
    leaseLeftMs: kind === 'held' ? condition.until.getTime() - now.getTime() : undefined,
    createdAt: operation.createdAt ?? (since instanceof Date ? since : undefined),
    perSecond,
    leftMs: isOpen && perSecond ? (Math.max(0, expected - counts.seen) / perSecond) * 1_000 : undefined,
  }
}

/** @throws NotFound */
export async function operationNamed(system: System, id: string): Promise<OperationState> {
  const [found] = (await listOperations(system, { id })).operations
  if (found) return found
  throw new NotFound(
    `there is no operation '${id}'`,
    { reason: 'noDocument', id, lifecycles: [OPERATION_LIFECYCLE] },
    'see: phaselock operations',
  )
}

/**
 * Ends an operation after the current page: documents that were acted on stay so.
 * @example await abortOperation(system, 'wake-4f2a9c1b')
 * @throws NotFound; Refused if it has ended
 */
export async function abortOperation(system: System, id: string): Promise<OperationState> {
  const found = await operationNamed(system, id)
  if (found.condition === 'Done' || found.condition === 'Aborted')
    throw new Refused(`operation ${id} has ended already: it is ${found.condition}`)
  const own: System = { ...system, models: [operationDefinition.model] }
  const about = { action: 'operations abort', target: `operation ${id}`, before: found.counts }
  await recorded(system, about, () => asOwner(own, OPERATION_LIFECYCLE, (owner) => owner.setState(id, 'Aborted')))
  return found
}
