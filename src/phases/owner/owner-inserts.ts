import { types } from 'node:util'
import { BSON, type Collection, type Db, type Document, ObjectId } from 'mongodb'
import { isDuplicateKey } from '../../database/index.js'
import {
  canBeId,
  type Insertion,
  idText,
  isTooLarge,
  NO_ID,
  ON_DUPLICATE,
  removedPhase,
  shownFields,
  type Terms,
  upsertDocument,
  whyNotStorable,
} from '../../lock/index.js'
import { checkOptions, InvalidOptions, shown, t } from '../../options/index.js'
import { systemClock } from '../../time/index.js'
import { DocumentExists, InvalidDocument } from '../errors/errors.js'
import type { AuditedEnd } from '../events/audit.js'
import { type LifecycleModel, workingPhases } from '../model/model.js'
import { termsInForce } from '../model/registered.js'
import { CALL_OPTIONS, checkCallOptions, inSession, type OwnerAudit } from './owner-calls.js'
import type { OwnerRings } from './owner-rings.js'
import type { InsertOptions, InsertResult, OwnerOptions } from './owner-types.js'

/** The inserts of an owner, checked, audited and rung for. */
export class OwnerInserts {
  constructor(
    private readonly parts: {
      readonly db: Db
      readonly model: LifecycleModel
      readonly documents: Collection
      readonly terms: Terms
      readonly rings: OwnerRings
      readonly audit: OwnerAudit
    },
  ) {}

  /** Inserts a document, or does what `onDuplicate` says. */
  async upsert(doc: Document, options: OwnerOptions): Promise<InsertResult> {
    const { db, documents, model, rings, audit } = this.parts
    const document: Document = { phase: model.entries[0], ...doc }
    const { onDuplicate, dueInMs } = duplicateOptions(model, options, document)
    checkDocument(model, document)
    checkUpsert(model, document)
    const working = workingPhases(model)
    const resting = [...model.phases.keys()].filter((phase) => !working.includes(phase))
    const removed = model.settings.callbacks && removedPhase(model.name)
    const id = document['_id'] as unknown
    const act = async () => {
      const terms = dueInMs === undefined ? this.parts.terms : await termsInForce(db, model)
      const request = { document, onDuplicate, dueInMs, working, resting, removed, by: options.audit?.by ?? 'owner' }
      const insertion = await upsertDocument(documents, terms, request, inSession(options)).catch((error) => {
        throw notInserted(model, error, [document])
      })
      return insertResult(model, id, insertion)
    }
    const after = shownFields(document, model.settings.progress)
    const about = { action: 'insert', document: id }
    const result = await audit.record(options, about, act, (end) => endOfInsert(end, after))
    if (dueInMs !== undefined) return result
    if (result.kind === 'inserted') rings.inserting([document], options)()
    else if (hasMadeDue(result.kind)) rings.look(options)
    return result
  }

  /** Inserts documents; returns their `_id`s. */
  async insertAll(called: string, docs: readonly object[], options: InsertOptions): Promise<unknown[]> {
    const { db, model, audit } = this.parts
    checkInserts(model, called, docs, options)
    if (docs.length === 0) return []
    const complete = docs.map((doc): Document => completed(db, { phase: model.entries[0], ...doc }))
    for (const doc of complete) checkDocument(model, doc)
    const about = complete.length === 1 ? { document: complete[0]!['_id'] } : { target: `${complete.length} documents` }
    const after = complete.length === 1 ? shownFields(complete[0]!, model.settings.progress) : undefined
    const act = () => this.inserted(complete, options)
    return audit.record(options, { action: 'insert', ...about }, act, () => ({ outcome: 'done', after }))
  }

  private async inserted(complete: readonly Document[], options: InsertOptions): Promise<unknown[]> {
    const { documents, model, rings } = this.parts
    const inserting = documents.insertMany([...complete], inSession(options))
    const stored = rings.inserting(complete, options)
    const { insertedIds } = await inserting.catch((error) => {
      throw notInserted(model, error, complete)
    })
    stored()
    return Object.values(insertedIds)
  }
}

const insertOptions = t.object({
  onDuplicate: t.oneOf(ON_DUPLICATE),
  dueIn: t.optional(t.duration('1ms', '365d')),
  ...CALL_OPTIONS,
})

/** @throws InvalidOptions */
function duplicateOptions({ settings, name }: LifecycleModel, options: unknown, document: Document) {
  if (Object(options).onDuplicate === undefined)
    throw new InvalidOptions('insert', [
      "dueIn: expected together with onDuplicate, which says what becomes of a document that is there already, such as onDuplicate: 'ignore'",
    ])
  const { onDuplicate, dueIn } = checkOptions('insert', insertOptions, options)
  if (dueIn !== undefined && document['lockedAt'] != null) {
    throw new InvalidOptions('insert', ['dueIn: expected without a lockedAt, which says when it is due'])
  }
  if (settings.legacyWriters && onDuplicate !== 'ignore') {
    const problem = `expected 'ignore', got '${onDuplicate}': ${name} has legacyWriters, which would overlook what is left for them`
    throw new InvalidOptions('insert', [`onDuplicate: ${problem}`])
  }
  return { onDuplicate, dueInMs: dueIn }
}

const insertManyOptions = t.object({
  ...CALL_OPTIONS,
  ringFor: t.optional(t.oneOf(['these', 'phase'])),
  onDuplicate: t.optional(t.where<undefined>(() => false, 'expected to be given to insert, one document at a time')),
})

/**
 * Checks the arguments of `insertMany`, and of `insert` without `onDuplicate`.
 * @throws InvalidOptions; InvalidDocument for one that isn't an object
 */
function checkInserts({ name, phases }: LifecycleModel, called: string, docs: unknown, options: unknown): void {
  checkCallOptions(called, options, insertManyOptions)
  if (!Array.isArray(docs)) throw new InvalidOptions('insertMany', [`expected a list of documents, got ${shown(docs)}`])
  for (const doc of docs) {
    if (typeof doc === 'object' && doc !== null && !Array.isArray(doc)) continue
    const problem = `${name}: expected a document, an object with your fields, got ${shown(doc)}`
    throw new InvalidDocument(name, undefined, [...phases.keys()], problem)
  }
}

/** Gives it an `_id` as the driver would, but before the insert, and a `createdAt` by the same clock as an ObjectId. */
function completed({ options }: Db, doc: Document): Document {
  const { forceServerObjectId, pkFactory } = options ?? {}
  const dated = { ...doc, createdAt: doc['createdAt'] ?? systemClock.now() }
  if (doc['_id'] != null || forceServerObjectId) return dated
  return { ...dated, _id: pkFactory?.createPk() ?? new ObjectId() }
}

/** @throws InvalidDocument */
export function checkDocument({ name, phases, settings }: LifecycleModel, doc: Document, what = name): void {
  const { _id, phase } = doc
  if (!phases.has(phase)) throw new InvalidDocument(name, phase, [...phases.keys()])
  const problem =
    _id === undefined || canBeId(_id)
      ? (whyNotStorable(doc) ?? whyNeverClaimed(doc, settings.progress))
      : `expected an _id that a document can have (${NO_ID}), got ${shown(_id)}`
  if (problem !== undefined) throw new InvalidDocument(name, phase, [...phases.keys()], `${what}: ${problem}`)
}

/** The reason why the document would be quarantined, or mended, instead of being worked on. */
function whyNeverClaimed(doc: Document, progress: string): string | undefined {
  const { lockedAt, [progress]: ours } = doc
  if (lockedAt != null && !types.isDate(lockedAt))
    return `expected lockedAt to be a date, or left out, got ${shown(lockedAt)}`
  if (ours != null && (typeof ours !== 'object' || Array.isArray(ours)))
    return `expected '${progress}' to be an object, or left out, got ${shown(ours)}`
  return undefined
}

/**
 * Checks a document whose insert may find another with its `_id`: it needs an `_id`, and none of the fields that Phaselock writes.
 * @throws InvalidDocument
 */
function checkUpsert({ name, phases, settings }: LifecycleModel, document: Document): void {
  const ours = [settings.progress, 'lockedBy', 'fence'].filter((field) => document[field] !== undefined)
  const operators = Object.keys(document).filter((field) => field.startsWith('$'))
  const { _id } = document
  const problem =
    operators.length > 0
      ? `expected fields that don't begin with '$', got ${operators.join(', ')}`
      : _id == null
        ? `expected an _id by which a document may be there already, got ${shown(_id)}`
        : ours.length > 0
          ? `expected only the owner's own fields, got ${ours.join(', ')}: Phaselock writes these; leave them out`
          : undefined
  if (problem) throw new InvalidDocument(name, document['phase'], [...phases.keys()], `insert: ${problem}`)
}

const REMOVED = 'it is removed, and deleted when its callbacks have been told: insert it again then'

/** @throws InvalidDocument where `onDuplicate` can't apply to the existing document; DocumentExists where that one is removed */
function insertResult<Id>({ name, phases, settings }: LifecycleModel, id: Id, end: Insertion): InsertResult<Id> {
  if (end.kind === 'removed') throw new DocumentExists(name, id, '_id_', 0, new Error('removed'), REMOVED)
  if (end.kind !== 'refused') return { id, kind: end.kind }
  const known = [...phases.keys()]
  const problem = end.isOdd
    ? `${name} ${idText(id)} exists, and its '${settings.progress}' or 'phase' isn't Phaselock's: correct it, or remove it`
    : `${name} ${idText(id)} exists in a phase that isn't known here: expected one of ${known.join(', ')}, got ${shown(end.phase)}; is a newer version at work?`
  throw new InvalidDocument(name, end.phase, known, problem)
}

function endOfInsert({ kind }: InsertResult<unknown>, after: unknown): AuditedEnd {
  if (kind === 'ignored') return { outcome: 'unchanged' }
  if (kind === 'parked' || kind === 'resting') return { outcome: 'refused', problem: kind }
  return { outcome: 'done', after: kind === 'woken' ? undefined : after }
}

const hasMadeDue = (kind: InsertResult['kind']): boolean =>
  kind === 'woken' || kind === 'replaced' || kind === 'restarted'

/**
 * The error of a failed insert, for its caller. With `onDuplicate` a document goes into a command up to three times: as it is, and as what is kept
 * for a held one.
 */
function notInserted(model: LifecycleModel, error: Error, docs: readonly Document[]): Error {
  if (isDuplicateKey(error)) return existing(model.name, error, docs)
  if (!isTooLarge(error)) return error
  const { name, phases } = model
  const largest = docs.reduce((one, other) => (sizeOf(other) > sizeOf(one) ? other : one))
  const problem =
    `${name} ${idText(largest['_id'])}: expected a document of at most 16 MB with what Phaselock keeps in it, or of about 4 MB with onDuplicate, ` +
    `got ${(sizeOf(largest) / MB).toFixed(1)} MB; keep what is large elsewhere, such as in GridFS, and its name in the document`
  return new InvalidDocument(name, largest['phase'], [...phases.keys()], problem)
}

const MB = 1024 * 1024
const sizeOf = (document: Document): number => BSON.calculateObjectSize(document)

/** The error for a duplicate key. Inserts are ordered: those before the one that exists are stored. */
function existing(lifecycle: string, error: Error, docs: readonly Document[]): DocumentExists {
  const { writeErrors, message } = error as Error & { writeErrors?: { index?: number } | { index?: number }[] }
  const at = [writeErrors ?? []].flat()[0]?.index ?? 0
  const index = /index: (\S+)/.exec(message)?.[1] ?? '_id_'
  return new DocumentExists(lifecycle, docs[at]?.['_id'], index, at, error)
}
