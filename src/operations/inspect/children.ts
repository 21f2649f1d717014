import type { Document } from 'mongodb'
import {
  childListsIn,
  childrenFromIn,
  countChildren,
  isOfFormer,
  isParked,
  isRemovedPhase,
  PARKED_AT,
  parentIn,
  type StoredParent,
  someChildren,
} from '../../lock/index.js'
import {
  type ChildCounts,
  type ChildState,
  countsOf,
  endPhases,
  endsOf,
  type LifecycleModel,
  notifyingOf,
  worstOf,
} from '../../phases/index.js'
import { modelOf, type System } from '../system/system.js'

/** The maximum number of children in the worst state that are named. */
const MOST_NAMED = 3

/** The children of a document that are of one lifecycle. */
export interface ChildrenOfLifecycle extends ChildCounts {
  readonly lifecycle: string
  /** The worst state among them; undefined if there are no children. */
  readonly worst: ChildState | undefined
  /** Some of those in that state, if a person may have to look: parked or failed ones. */
  readonly worstIds: readonly unknown[]
}

/** The children of a document. */
export interface ChildrenShown {
  readonly byLifecycle: readonly ChildrenOfLifecycle[]
  /** Lifecycles of children that are unknown here. */
  readonly unknown: readonly string[]
  /** The worst state among them; undefined if there are no children. */
  readonly worst: ChildState | undefined
}

/** The parent of a document. */
export interface ParentShown extends StoredParent {
  /** The phase that it is in; undefined if it is gone, or its lifecycle is unknown here. */
  readonly phase: unknown
}

type Shown = { readonly lifecycle: string; readonly document: Document }

/** The state of a document's children, by their own index. */
export async function childrenOf(system: System, { lifecycle, document }: Shown): Promise<ChildrenShown | undefined> {
  const { progress } = modelOf(system, lifecycle).settings
  const lists = childListsIn(document[progress])
  if (lists.length === 0) return undefined
  const parent = { lifecycle, id: document['_id'], from: childrenFromIn(document[progress]) }
  const names = [...new Set(lists.flatMap((one) => one.lifecycle ?? []))]
  const models = names.map((name) => system.models.find((model) => model.name === name && model.settings.child))
  const byLifecycle = await Promise.all(
    models.flatMap((model, i) => {
      const own = lists.filter((one) => one.lifecycle === names[i])
      const total = own.reduce((sum, one) => sum + one.total, 0)
      return model ? [ofLifecycle(system, model, parent, total)] : []
    }),
  )
  const worst = worstOf({
    parked: 0,
    failed: 0,
    removed: 0,
    open: 0,
    succeeded: 0,
    ...Object.fromEntries(byLifecycle.flatMap((one) => (one.worst ? [[one.worst, 1]] : []))),
  })
  return { byLifecycle, unknown: names.filter((_, i) => !models[i]), worst }
}

async function ofLifecycle(
  { db }: System,
  model: LifecycleModel,
  { from, ...parent }: { lifecycle: string; id: unknown; from: number | undefined },
  total: number,
): Promise<ChildrenOfLifecycle> {
  const of = ofParent(db, model, parent, from)
  const counts = countsOf(await countChildren(of, endsOf(model), total), model, total)
  const worst = worstOf(counts)
  const where =
    worst === 'parked'
      ? { phase: { $nin: endsOf(model) }, lockedAt: { $gte: PARKED_AT } }
      : worst === 'failed' && { phase: { $in: endPhases(model).failed } }
  const some = where ? await someChildren(of, where, MOST_NAMED) : []
  return { lifecycle: model.name, ...counts, worst, worstIds: some.map(({ _id }) => _id) }
}

const ofParent = (
  db: System['db'],
  model: LifecycleModel,
  parent: { readonly lifecycle: string; readonly id: unknown },
  fromFence: number | undefined,
) => ({
  ...{ collection: db.collection(model.collection), progress: model.settings.progress },
  ...{ parent, fromFence, notifying: notifyingOf(model) },
})

/** The number of open children among which a parked one is looked for. */
const MOST_OPEN_READ = 100

/** One of the children that haven't ended: a parked one, if there is one among the first hundred. Undefined: none is open, as far as is known here. */
export async function openChild(
  { db, models }: System,
  { lifecycle, document }: Shown,
): Promise<{ readonly lifecycle: string; readonly _id: unknown } | undefined> {
  const progress: unknown = document[modelOf({ db, models }, lifecycle).settings.progress]
  const parent = { lifecycle, id: document['_id'] as unknown }
  const names = [...new Set(childListsIn(progress).flatMap((one) => one.lifecycle ?? []))]
  const open: (Document & { readonly lifecycle: string })[] = []
  for (const model of models.filter(({ name, settings }) => names.includes(name) && settings.child)) {
    const of = ofParent(db, model, parent, childrenFromIn(progress))
    const found = await someChildren(of, { phase: { $nin: endsOf(model) } }, MOST_OPEN_READ)
    open.push(...found.map((one) => ({ ...one, lifecycle: model.name })))
  }
  const child = open.find((one) => isParked(one)) ?? open[0]
  return child && { lifecycle: child.lifecycle, _id: child['_id'] }
}

/** The parent of a document. */
export async function parentOf(system: System, { lifecycle, document }: Shown): Promise<ParentShown | undefined> {
  const stored = parentIn(document[modelOf(system, lifecycle).settings.progress])
  if (!stored) return undefined
  const { fence: _, ...parent } = stored
  const model = system.models.find(({ name }) => name === parent.lifecycle)
  if (!model) return { ...parent, phase: undefined }
  const projection = { phase: 1, [`${model.settings.progress}.childrenFrom`]: 1 }
  const found = await system.db.collection(model.collection).findOne({ _id: parent.id as never }, { projection })
  const { phase, [model.settings.progress]: progress }: Document = found ?? {}
  const isGone = isRemovedPhase(phase) || isOfFormer(stored, childrenFromIn(progress))
  return { ...parent, phase: isGone ? undefined : phase }
}
