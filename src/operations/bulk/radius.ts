import type { Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import {
  childListsIn,
  childrenFromIn,
  idKey,
  isOfFormer,
  LEASE_FIELDS,
  MissingIndex,
  openChildrenOf,
  readOwnFields,
  type StoredParent,
  unwrittenTo,
} from '../../lock/index.js'
import { type Count, endsOf, type LifecycleModel, notifyingOf, Tally, troubleOf } from '../../phases/index.js'
import { type ConditionKind, conditionOf } from '../inspect/condition.js'
import { inForceIn, type System } from '../system/system.js'
import { actions, type Foreseeing, type Looked, whyUndone } from './actions.js'
import type { Acted } from './operation.js'
import { type RadiusTime, timeOf } from './radius-time.js'
import type { OperationRequest } from './request.js'

export type { LimitTime, PhaseTime, RadiusTime } from './radius-time.js'

/** Documents that an operation would leave alone for one reason. */
export interface LeftAlone {
  /** In the words in which the operation itself says it. */
  readonly reason: string
  /** The number of documents that it leaves alone for this reason. */
  readonly documents: Count
  /** A few of their `_id`s. */
  readonly examples: readonly unknown[]
}

/** Documents that match an operation's selection, and have all of this in common. */
export interface RadiusGroup {
  /** The phase that they are in. */
  readonly phase: string
  /** The condition that they are in, as `phaselock list` shows it. */
  readonly condition: ConditionKind
  /** The cause that they fail or are parked for; null: they have no trouble. */
  readonly cause: { readonly id: string; readonly text: string } | null
  /** The number of these documents. */
  readonly documents: Count
  /** Those of them that it would act on. */
  readonly done: Count
}

/** Children of one lifecycle that haven't ended, of documents that an operation would act on. */
export interface OpenChildren {
  /** The lifecycle of the children. */
  readonly lifecycle: string
  /** The documents that have any. */
  readonly parents: Count
  /** The number of these children. */
  readonly children: Count
}

/**
 * What an operation would do. A Count with `about` is estimated from a sample. What the database itself would refuse to write, such as what a validator
 * or a unique index forbids, can't be foreseen.
 */
export interface BlastRadius {
  /** The number of documents that were looked at: all that match, or a sample of them. */
  readonly looked: number
  /** The number of documents that the sample was taken of, in the order of an index; null: all were looked at. */
  readonly sampledOf: number | null
  /** The number of documents that it would change. */
  readonly done: Count
  /** Those that need no change. */
  readonly unchanged: Count
  /** Most first. */
  readonly leftAlone: readonly LeftAlone[]
  /** Most first. */
  readonly groups: readonly RadiusGroup[]
  /** The open children of documents that it would act on, by lifecycle. */
  readonly openChildren: readonly OpenChildren[]
  /** Lifecycles of children that this program doesn't know: whether they are open is unknown. */
  readonly unknownChildren: readonly string[]
  /** How long it takes, and what it sets off. */
  readonly time: RadiusTime
}

/** The most documents that are looked at, that a sample is taken of, and open children that are read. */
export interface RadiusBounds {
  readonly looked: number
  readonly among: number
  readonly children: number
}
const BOUNDS: RadiusBounds = { looked: 1_000, among: 100_000, children: 10_000 }
const WITHIN_MS = 60_000
const MOST_EXAMPLES = 3

interface Selected {
  readonly model: LifecycleModel
  readonly filter: Document
  readonly options: Document
  readonly count: number
}

interface Foreseen extends Looked {
  readonly acted: Acted
}

/**
 * Predicts what an operation would do, by the very conditions of its writes, on all documents that match or on a sample. Nothing is written.
 * @param bounds of its reads
 */
export async function blastRadius(
  system: System,
  request: OperationRequest,
  { model, filter, options, count }: Selected,
  bounds: RadiusBounds = BOUNDS,
): Promise<BlastRadius> {
  const { terms, pauses } = (await inForceIn(system.db, [model]))(model)
  const isSampled = count > bounds.looked
  const looked = await look(system, { model, filter }, isSampled, bounds)
  const stratum = { n: isSampled ? count : looked.length, more: false, read: looked.length }
  const acting: Foreseeing = {
    ...{ db: system.db, model, documents: protocolCollection(system.db, model.collection), options, by: request.by },
    // No document has the mark of an operation without a name.
    ...{
      terms,
      pauses,
      share: isSampled ? looked.length / count : 1,
      operating: { operation: '', by: request.by, where: filter },
    },
  }
  const all = await foreseen(acting, request.action, looked)
  const counted = (some: readonly unknown[]): Count => {
    const tally = new Tally()
    tally.looked(stratum)
    for (const _ of some) tally.add(stratum)
    return tally.count
  }
  const done = all.filter(({ acted }) => acted === 'done')
  return {
    ...{ looked: looked.length, sampledOf: isSampled ? Math.min(count, bounds.among) : null, done: counted(done) },
    unchanged: counted(all.filter(({ acted }) => acted === 'unchanged')),
    leftAlone: leftAlone(all, counted),
    groups: groupsOf(all, model, terms.lockTimeoutMs, counted),
    ...(await childrenOfAll(system, model, done, { counted, most: bounds.children })),
    time: await timeOf(system, request, { model, options, count, done: done.map(({ document }) => document), counted }),
  }
}

type Counted = (some: readonly unknown[]) => Count

async function look(
  { db }: System,
  { model, filter }: Pick<Selected, 'model' | 'filter'>,
  isSampled: boolean,
  { looked, among }: RadiusBounds,
): Promise<Looked[]> {
  const { progress } = model.settings
  const some = isSampled ? [{ $limit: among }, { $sample: { size: looked } }] : [{ $limit: looked }]
  const pipeline = [
    { $match: filter },
    ...some,
    { $project: { ...LEASE_FIELDS, _id: 1, phase: 1, updatedAt: 1, [progress]: 1 } },
    { $unset: `${progress}.history` },
    { $sort: { _id: 1 } },
    { $project: { _id: 0, document: '$$ROOT', now: '$$NOW' } },
  ]
  const rows = await readOwnFields((how) =>
    db
      .collection(model.collection)
      .aggregate(pipeline, { ...how, maxTimeMS: WITHIN_MS })
      .toArray(),
  )
  return rows as unknown as Looked[]
}

async function foreseen(
  acting: Foreseeing,
  action: OperationRequest['action'],
  looked: readonly Looked[],
): Promise<Foreseen[]> {
  const foresight = actions[action].foresee!(acting)
  if ('judge' in foresight) return looked.map((one) => ({ ...one, acted: foresight.judge(one) }))
  const ids = looked.map(({ document }) => document['_id'] as unknown)
  const written = new Set<string>()
  const among = async (filter: Document) => {
    const found = await acting.documents
      .find({ ...filter, _id: { $in: ids as never[] } }, { projection: { _id: 1 }, maxTimeMS: WITHIN_MS })
      .toArray()
    return found.map(({ _id }) => idKey(_id))
  }
  for (const filter of foresight.filters) for (const key of await among(filter)) written.add(key)
  const { unchanged, words } = foresight
  const same = new Set(unchanged && (await among(unchanged)))
  return looked.map((one) => {
    const key = idKey(one.document['_id'])
    if (written.has(key)) return { ...one, acted: 'done' }
    return { ...one, acted: same.has(key) ? 'unchanged' : { skipped: whyUndone(unwrittenTo(one.document), words) } }
  })
}

const mostFirst = (one: { readonly documents: Count }, other: { readonly documents: Count }) =>
  other.documents.n - one.documents.n

function leftAlone(all: readonly Foreseen[], counted: Counted): LeftAlone[] {
  const skipped = all.filter(({ acted }) => typeof acted === 'object')
  const byReason = Map.groupBy(skipped, ({ acted }) => (acted as { readonly skipped: string }).skipped)
  return [...byReason]
    .map(([reason, some]) => ({
      ...{ reason, documents: counted(some) },
      examples: some.slice(0, MOST_EXAMPLES).map(({ document }) => document['_id'] as unknown),
    }))
    .sort(mostFirst)
}

function groupsOf(
  all: readonly Foreseen[],
  model: LifecycleModel,
  lockTimeoutMs: number,
  counted: Counted,
): RadiusGroup[] {
  const described = all.map((one) => {
    const { phase } = one.document
    const trouble = troubleOf(one.document, model)
    return {
      phase: typeof phase === 'string' ? phase : '(not a string)',
      condition: conditionOf(one.document, model, one.now, lockTimeoutMs).kind,
      cause: trouble ? { id: trouble.cause, text: trouble.text } : null,
      isDone: one.acted === 'done',
    }
  })
  const groups = Map.groupBy(described, ({ phase, condition, cause }) => JSON.stringify([phase, condition, cause?.id]))
  return [...groups.values()]
    .map((some) => {
      const { phase, condition, cause } = some[0]!
      return {
        ...{ phase, condition, cause, documents: counted(some) },
        done: counted(some.filter(({ isDone }) => isDone)),
      }
    })
    .sort(mostFirst)
}

/** The open children of documents, by their index: of up to `most` in each lifecycle. */
async function childrenOfAll(
  { db, models }: System,
  model: LifecycleModel,
  parents: readonly Looked[],
  { counted, most }: { readonly counted: Counted; readonly most: number },
): Promise<Pick<BlastRadius, 'openChildren' | 'unknownChildren'>> {
  const openChildren: OpenChildren[] = []
  const progressOf = ({ document }: Looked): unknown => document[model.settings.progress]
  const byKey = new Map(parents.map((one) => [idKey(one.document['_id']), childrenFromIn(progressOf(one))]))
  const names = new Set(
    parents.flatMap((one) => childListsIn(progressOf(one)).flatMap(({ lifecycle }) => lifecycle ?? [])),
  )
  const unknownChildren: string[] = []
  for (const name of names) {
    const child = models.find((one) => one.name === name && one.settings.child)
    const with_ = parents.filter((one) => childListsIn(progressOf(one)).some(({ lifecycle }) => lifecycle === name))
    const ids = with_.map(({ document }) => document['_id'] as unknown)
    const found = child && (await openOf(db, child, { lifecycle: model.name, ids }, most))
    if (!found) {
      unknownChildren.push(name)
      continue
    }
    const own = found.filter((one) => !isOfFormer(one, byKey.get(idKey(one.id))))
    const having = new Set(own.map(({ id }) => idKey(id)))
    const more = found.length >= most && { more: true as const }
    openChildren.push({
      lifecycle: name,
      ...{ parents: { ...counted([...having]), ...more }, children: { ...counted(own), ...more } },
    })
  }
  return { openChildren, unknownChildren }
}

/** Undefined: their collection has no index for it. */
async function openOf(
  db: System['db'],
  child: LifecycleModel,
  parents: { readonly lifecycle: string; readonly ids: readonly unknown[] },
  most: number,
): Promise<readonly StoredParent[] | undefined> {
  const of = {
    collection: db.collection(child.collection),
    progress: child.settings.progress,
    notifying: notifyingOf(child),
  }
  try {
    return await openChildrenOf(parents, of, endsOf(child), most)
  } catch (error) {
    if (error instanceof MissingIndex) return undefined
    throw error
  }
}
