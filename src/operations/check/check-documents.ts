import { BSON, type Collection, type Document, type Filter } from 'mongodb'
import {
  COUNT_LIMIT,
  futureLeases,
  idKey,
  inPhase,
  isRemovedPhase,
  LIFECYCLES_COLLECTION,
  NEVER_DUE,
  NEVER_DUE_TYPES,
  onClaimIndex,
  RefusingDocuments,
  RepairLook,
  readOwnFields,
  redateLeases,
  removedPhase,
  unanswerable,
} from '../../lock/index.js'
import { type LifecycleModel, workingPhases } from '../../phases/index.js'
import { formatMs, systemClock } from '../../time/index.js'
import { unknownPhases } from '../inspect/count.js'
import { idText, idTyped } from '../system/document-id.js'
import { hasIndexForClaims } from './check-indexes.js'
import { type Checked, type CheckResult, type Finding, finding, mendable } from './finding.js'

const SHOWN = 3
const MOST_ROUNDS = 1_000

const MISSING = ['missing', 'null', 'undefined']
const DATES = ['date', ...MISSING]

/** The fields that the protocol reads, each with the types that it can use, and the advice for others. */
const fieldsOf = (progress: string): readonly { field: string; sound: readonly string[]; advice: string }[] => [
  { field: 'phase', sound: ['string'], advice: 'it is never claimed: set its phase to a string' },
  { field: 'lockedAt', sound: DATES, advice: 'it counts as free; its next claim repairs it' },
  { field: 'lockedBy', sound: ['string', ...MISSING], advice: 'its next claim repairs it' },
  { field: 'updatedAt', sound: DATES, advice: 'it counts as missing; set it to a date, or unset it' },
  { field: 'createdAt', sound: DATES, advice: 'nothing depends on it; set it to a date, or unset it' },
  {
    field: 'fence',
    sound: ['int', 'long', 'double', 'decimal', ...MISSING],
    advice: 'it starts again with its next claim',
  },
  {
    field: progress,
    sound: ['object', ...MISSING],
    advice: `it is put aside and not changed: move its owner's '${progress}' to another field, or give the lifecycle fields: { progress: '...' }`,
  },
]

/** Documents with a field of a type that it must not have. */
interface OddField {
  readonly _id: { readonly field: string; readonly type: string }
  readonly count: number
  readonly ids: readonly unknown[]
}

/** Finds documents with a field of a type that the protocol can't use. Reads the whole collection. */
export async function checkShapes(checked: Checked): Promise<CheckResult> {
  const { db, models } = checked
  const findings: Finding[] = []
  const byCollection = new Map(models.map((model) => [model.collection, model.settings.progress]))
  for (const [name, progress] of byCollection) {
    const fields = fieldsOf(progress)
    const odd = fields.map(({ field, sound }) => ({
      $cond: [{ $in: [{ $type: `$${field}` }, [...sound]] }, null, { field, type: { $type: `$${field}` } }],
    }))
    const pipeline = [
      {
        $match: {
          $expr: {
            $or: fields.map(({ field, sound }) => ({ $not: [{ $in: [{ $type: `$${field}` }, [...sound]] }] })),
          },
        },
      },
      { $limit: COUNT_LIMIT },
      { $project: { odd: { $filter: { input: odd, as: 'one', cond: { $ne: ['$$one', null] } } } } },
      { $unwind: '$odd' },
      { $group: { _id: '$odd', count: { $sum: 1 }, ids: { $push: '$_id' } } },
      { $project: { count: 1, ids: { $slice: ['$ids', SHOWN] } } },
      { $sort: { _id: 1 } },
    ]
    const rows = await readOwnFields((how) => db.collection(name).aggregate(pipeline, how).toArray())
    for (const { _id, count, ids } of rows as OddField[]) {
      // Those that never come due are covered by another check.
      if (_id.field === 'lockedAt' && NEVER_DUE_TYPES.includes(_id.type)) continue
      findings.push(
        finding(
          name,
          `${documents(count)} with ${_id.field} of type ${_id.type} (${listOf(ids, count)})`,
          fields.find(({ field }) => field === _id.field)!.advice,
        ),
      )
    }
  }
  for (const model of models) findings.push(...(await withoutQuestion(checked, model)))
  return { check: 'shapes', said: `${byCollection.size} collections read`, findings }
}

/** Finds documents that sleep until they are answered, but whose question can't be answered. */
async function withoutQuestion({ db, termsOf }: Checked, model: LifecycleModel): Promise<Finding[]> {
  const collection = db.collection(model.collection)
  const filter = unanswerable(termsOf(model), workingPhases(model))
  const found = await read(collection, await hasIndexForClaims(collection), filter, { _id: 1 })
  if (found.length === 0) return []
  const ids = found.map((document) => document['_id'] as unknown)
  const asks = `${model.settings.progress}.question`
  return [
    finding(
      model.collection,
      `${documents(ids.length)} asleep until an answer comes, with a ${asks} that nobody can answer (${listOf(ids, ids.length)})`,
      `phaselock show says what is wrong with it; phaselock wake ${idTyped(ids[0])} runs its step, which asks again`,
    ),
  ]
}

/** Finds documents that no claim may ever find. */
export async function checkStuck({ db, models, termsOf, repair }: Omit<Checked, 'collections'>): Promise<CheckResult> {
  const findings: Finding[] = []
  for (const model of models) {
    const collection = db.collection(model.collection)
    const phases = [...model.phases.keys()]
    const isIndexed = await hasIndexForClaims(collection)
    const found = await stuckIds(collection, phases, isIndexed)
    if (found.length === 0) continue
    const look = new RepairLook(
      collection,
      () => termsOf(model),
      phases,
      new RefusingDocuments(systemClock),
      () => systemClock.monotonicMs(),
    )
    const about = {
      about: model.collection,
      problem: `${documents(found.length)} with a lockedAt that never comes due (${listOf(found, found.length)})`,
      advice: 'free them: phaselock check --repair; replicas also do it within a minute',
    }
    // The repair names the claim index: without that index nothing can be repaired yet.
    findings.push(await mendable(about, repair && isIndexed, () => repairAll(look)))
  }
  return { check: 'never due', said: 'none is hidden from claims', findings }
}

/** Finds leases that began later than now: the server's clock stepped back since, so they last longer by the whole step. */
export async function checkLeases({ db, models, termsOf, repair }: Checked): Promise<CheckResult> {
  const findings: Finding[] = []
  for (const model of models) {
    const collection = db.collection(model.collection)
    const terms = termsOf(model)
    const phases = [...model.phases.keys()]
    const isIndexed = await hasIndexForClaims(collection)
    const ahead = { aheadMs: { $subtract: ['$lockedAt', '$$NOW'] } }
    const found = await read(collection, isIndexed, futureLeases(terms, phases), ahead)
    if (found.length === 0) continue
    const ids = found.map((document) => document['_id'] as unknown)
    const most = Math.max(...found.map(({ aheadMs }) => Number(aheadMs)))
    const about = {
      about: model.collection,
      problem: `${documents(found.length)} held by leases that begin up to ${formatMs(most)} from now (${listOf(ids, ids.length)}): the server's clock stepped back`,
      advice: `let them begin now, which takes nothing from a live holder: phaselock check --repair; what a dead one held is due ${formatMs(terms.lockTimeoutMs)} later`,
    }
    findings.push(await mendable(about, repair && isIndexed, () => redateLeases(collection, terms, phases)))
  }
  return { check: 'leases', said: 'none begins in the future', findings }
}

/** The ids of documents that never come due. One query for each kind, so that each reads a few keys of the claim index. */
async function stuckIds(collection: Collection, phases: readonly string[], isIndexed: boolean): Promise<unknown[]> {
  const ids = new Map<string, unknown>()
  for (const kind of Object.values(NEVER_DUE)) {
    const found = await read(collection, isIndexed, { phase: { $in: [...phases] }, ...kind }, { _id: 1 })
    for (const { _id } of found) ids.set(idKey(_id), _id)
  }
  return [...ids.values()]
}

function read(
  collection: Collection,
  isIndexed: boolean,
  filter: Filter<Document>,
  projection: Document,
): Promise<Document[]> {
  const options = { projection, limit: COUNT_LIMIT }
  const find = (hint?: Document) =>
    readOwnFields((how) => collection.find(filter, { ...options, ...how, ...(hint && { hint }) }).toArray())
  return isIndexed ? onClaimIndex(collection, find) : find()
}

async function repairAll(look: RepairLook): Promise<void> {
  for (let round = 0; round < MOST_ROUNDS; round += 1) if ((await look.repair()).repaired.length === 0) return
}

/** Finds documents in phases that no lifecycle of their collection has, whether known here or registered by a replica. */
export async function checkPhases({ db, models }: Checked): Promise<CheckResult> {
  const projection = { collection: 1, phases: 1, callbacks: 1 }
  const registered = await readOwnFields((how) =>
    db
      .collection(LIFECYCLES_COLLECTION)
      .find({}, { projection, ...how })
      .toArray(),
  )
  const findings: Finding[] = []
  for (const name of new Set(models.map((model) => model.collection))) {
    const own = models.filter((model) => model.collection === name)
    const known = new Set([
      ...own.flatMap(({ phases, renames }) => [...phases.keys(), ...renames.map((rename) => rename.from)]),
      ...registered.filter(({ collection }) => collection === name).flatMap(({ phases = [] }) => phases as string[]),
      // A removed document is deleted once its callbacks are delivered, by a replica of a lifecycle that has callbacks.
      ...own.filter(({ settings }) => settings.callbacks).map((model) => removedPhase(model.name)),
      ...registered.filter(({ callbacks }) => callbacks).map(({ _id }) => removedPhase(String(_id))),
    ])
    for (const phase of await unknownPhases(db.collection(name), known)) {
      const count = await db.collection(name).countDocuments(inPhase(phase), { limit: COUNT_LIMIT })
      if (count === 0) continue
      if (isRemovedPhase(phase)) {
        const which = BSON.EJSON.stringify({ phase })
        findings.push(
          finding(
            name,
            `${documents(count)} removed (${phase}), and no lifecycle of that name has callbacks here: nobody tells of them and deletes them`,
            `start replicas of it as it was, or delete them: db.getCollection('${name}').deleteMany(${which})`,
          ),
        )
        continue
      }
      findings.push(
        finding(
          name,
          `${documents(count)} in the phase '${phase}', which ${own.map((model) => model.name).join(' and ')} doesn't have`,
          `they are never claimed: set a phase of ${[...known].filter((one) => !isRemovedPhase(one)).join(', ')}, or declare renamed: { ${phase}: '...' }`,
        ),
      )
    }
  }
  return { check: 'phases', said: 'all are known', findings }
}

/** A count that stops at the limit: `10000+`. */
export const counted = (count: number) => `${count}${count >= COUNT_LIMIT ? '+' : ''}`

export const documents = (count: number) => (count === 1 ? '1 document' : `${counted(count)} documents`)

export const listOf = (ids: readonly unknown[], count: number) =>
  `${ids.slice(0, SHOWN).map(idText).join(', ')}${count > SHOWN ? ', ...' : ''}`
