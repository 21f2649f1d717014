import type { Db, Document, Filter } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import {
  type DocumentName,
  type Removed,
  type RemovedBy,
  readOwnFields,
  removeOne,
  type Terms,
  termsOf,
  waitersIn,
  wake,
} from '../../lock/index.js'
import { type LifecycleModel, notifyingOf } from '../model/model.js'
import { registeredModels } from '../model/registered.js'
import { inSession } from './owner-calls.js'
import { afterCommit } from './owner-rings.js'
import type { OwnerOptions } from './owner-types.js'

interface Removal {
  readonly id: unknown
  readonly terms: Terms
  /** Not while a replica has a lease on it. */
  readonly unlessHeld?: boolean
  readonly where?: Filter<Document> | undefined
  readonly by: RemovedBy
  readonly session?: OwnerOptions['session']
  /** Called with the lifecycles whose replicas have something to do now. */
  readonly ring: (lifecycles: readonly string[]) => void
}

/** Removes a document for its owner, and wakes those that wait for it. That is a hint, as they look again by themselves: it never fails the removal. */
export async function removeAndWake(
  db: Db,
  model: LifecycleModel,
  { id, terms, unlessHeld = false, where = {}, by, session, ring }: Removal,
): Promise<Removed | undefined> {
  const { name: lifecycle, settings } = model
  const documents = protocolCollection(db, model.collection)
  const projection = { [`${settings.progress}.waiters`]: 1 }
  const reading = readOwnFields((how) =>
    documents.find({ _id: id as never }, { projection, limit: 1, ...how }).toArray(),
  )
  const [before] = await reading.catch(() => [])
  const removed = await removeOne(
    documents,
    terms,
    notifyingOf(model),
    { _id: id, unlessHeld, where },
    by,
    inSession({ session }),
  )
  const waiters = waitersIn(before?.[settings.progress])
  if (!removed || waiters.length === 0) return removed
  const wakeThem = () =>
    wakeWaiters(db, { lifecycle, id }, waiters).then(
      (woken) => woken.length > 0 && ring(woken),
      () => undefined,
    )
  if (session?.inTransaction()) afterCommit(session, () => void wakeThem())
  else await wakeThem()
  return removed
}

/** Wakes those of these documents that still wait for that one; returns their lifecycles. */
async function wakeWaiters(
  db: Db,
  { lifecycle, id }: DocumentName,
  waiters: readonly DocumentName[],
): Promise<readonly string[]> {
  const names = [...new Set(waiters.map((one) => one.lifecycle))]
  const registered = await registeredModels(db, { _id: { $in: names } })
  const models = new Map(registered.map((one) => [one.name, one]))
  const woken = new Set<string>()
  for (const waiter of waiters) {
    const model = models.get(waiter.lifecycle)
    // Without the lockTimeout in force, legacy writers' leases look like sleeps.
    if (!model || model.settings.legacyWriters) continue
    const { progress, lockTimeoutMs } = model.settings
    const awaits = `${progress}.awaits`
    const stillWaits: Filter<Document> = {
      ...{ [`${awaits}.kind`]: 'document', [`${awaits}.lifecycle`]: lifecycle, [`${awaits}.id`]: { $eq: id } },
    }
    const collection = protocolCollection(db, model.collection)
    if (await wake(collection, termsOf(lockTimeoutMs, { progress }), waiter.id, {}, stillWaits)) woken.add(model.name)
  }
  return [...woken]
}
