import { BSON, type Db, type Document, type Filter } from 'mongodb'
import { readLockTimeouts, readOwnFields } from '../../lock/index.js'
import { type Condition, conditionOf, idsMeantBy, NotFound, UsageError } from '../../operations/index.js'
import type { LifecycleModel, RunnableLifecycle } from '../../phases/index.js'
import type { Workspace } from '../workspace.js'

/** A document, and what is needed to say what it is doing. */
export interface Found {
  readonly lifecycle: RunnableLifecycle
  readonly document: Document
  /** The server's time of the read. */
  readonly now: Date
  /** In force. */
  readonly lockTimeoutMs: number
  readonly condition: Condition
}

/** Documents of a lifecycle in the order of the claim index, each with the server's time of the read. */
export async function findDocuments(
  db: Db,
  lifecycle: RunnableLifecycle,
  filter: Filter<Document>,
  limit: number,
): Promise<Found[]> {
  const { model } = lifecycle
  const lockTimeoutMs = await lockTimeoutInForce(db, model)
  const pipeline = [
    { $match: filter },
    { $sort: { phase: 1, lockedAt: 1, updatedAt: 1 } },
    { $limit: limit },
    { $project: { _id: 0, document: '$$ROOT', now: '$$NOW' } },
  ]
  const rows = await readOwnFields((how) => db.collection(model.collection).aggregate(pipeline, how).toArray())
  return (rows as { document: Document; now: Date }[]).map(({ document, now }) => ({
    lifecycle,
    document,
    now,
    lockTimeoutMs,
    condition: conditionOf(document, model, now, lockTimeoutMs),
  }))
}

/** The lockTimeout in force, else the lifecycle's own where no replica has registered it yet. */
export async function lockTimeoutInForce(db: Db, model: LifecycleModel): Promise<number> {
  const registered = (await readLockTimeouts(db, [model.name])).get(model.name)
  return registered?.dueMs ?? model.settings.lockTimeoutMs
}

/** The document that an id means, and those of other lifecycles with the same `_id`, such as its children. */
export interface FoundOne extends Found {
  readonly also: readonly Found[]
}

/**
 * The document that an id means: in the lifecycle named, else in the first of all lifecycles that has it.
 * @throws NotFound when there is none; UsageError when the id means several of one lifecycle (a number and a text)
 */
export async function findDocument(workspace: Workspace, id: string, lifecycleName?: string): Promise<FoundOne> {
  const lifecycles = lifecycleName === undefined ? workspace.lifecycles : [workspace.lifecycle(lifecycleName)]
  const ids = idsMeantBy(id)
  const { db } = workspace.connection
  const byLifecycle = await Promise.all(
    lifecycles.map((lifecycle) => findDocuments(db, lifecycle, { _id: { $in: ids as never[] } }, ids.length)),
  )
  const [found, ...others] = byLifecycle.filter((documents) => documents.length > 0)
  const names = lifecycles.map(({ model }) => model.name).join(', ')
  if (!found) {
    const hint =
      lifecycleName === undefined
        ? '; --lifecycles <module> names those of your own'
        : '; leave out --lifecycle to look in all'
    throw new NotFound(`no document with the _id ${id} in ${names}${hint}`)
  }
  if (found.length === 1) return { ...found[0]!, also: others.flat() }
  const all = found.map(({ document }) => BSON.EJSON.stringify(document['_id'], { relaxed: true }))
  throw new UsageError(`the _id ${id} means ${found.length} documents; give it as one of: ${all.join(', ')}`)
}
