import type { Collection, Db, Document } from 'mongodb'
import { isServerError, protocolCollection } from '../../database/index.js'
import {
  CENSUS_COLLECTION,
  COUNT_LIMIT,
  LIFECYCLES_COLLECTION,
  PRESENT_REPLICAS,
  readOwnFields,
  removeDuties,
  removedPhase,
} from '../../lock/index.js'
import { COLLECTION_NAME } from '../../options/index.js'
import { CENSUS, modelRegistered, SWEEP, UNHANDLED } from '../../phases/index.js'
import { listReplicas } from '../inspect/replicas.js'
import { recorded } from '../system/audit.js'
import { NotFound, Refused } from '../system/errors.js'
import type { System } from '../system/system.js'

const UNAUTHORIZED = 13

/** A lifecycle that replicas have registered in a database. */
export interface Registration {
  readonly lifecycle: string
  /** Null if its entry has no valid collection name. */
  readonly collection: string | null
  /** The phases that its replicas have stored, including renamed ones. */
  readonly phases: readonly string[]
  /** The live replicas that run it. */
  readonly replicas: readonly string[]
  /** The number of documents in its collection that belong to no other lifecycle; at most {@link COUNT_LIMIT}. */
  readonly documents: number
  /** When a replica last looked after it, within a minute; null if no time is recorded. */
  readonly handledAt: Date | null
}

type Entry = Document & { readonly _id: string }

/**
 * The lifecycles that replicas have registered, in the order of their first registration.
 * @example await listRegistrations(system) // { registrations: [{ lifecycle: 'order', collection: 'Order', documents: 4, replicas: [], ... }], now }
 */
export async function listRegistrations({
  db,
}: Pick<System, 'db'>): Promise<{ readonly registrations: readonly Registration[]; readonly now: Date }> {
  const entries = await entriesOf(db)
  const models = entries.flatMap((entry) => modelRegistered(entry)?.model ?? [])
  const { replicas, now } = await listReplicas({ db, models })
  const registrations = entries.map(async (entry): Promise<Registration> => {
    const { _id: lifecycle, phases, handledAt } = entry
    const runIt = replicas.filter((one) => one.live && one.lifecycles.some(({ name }) => name === lifecycle))
    return {
      lifecycle,
      collection: collectionOf(entry) ?? null,
      phases: listed(phases),
      replicas: runIt.map(({ name }) => name),
      documents: await countDocumentsOf(db, entry, entries),
      handledAt: handledAt instanceof Date ? handledAt : null,
    }
  })
  return { registrations: await Promise.all(registrations), now }
}

/**
 * Removes a retired lifecycle from the database: its entry, and the notes of replicas about it. A replica that runs it registers it again
 * when it starts, or with its next look.
 *
 * Invariant: an entry that a live replica uses is never deleted. So the deletion is conditional on the entry: no replica has looked after
 * it or announced itself since it was read.
 * A document that is inserted in the meantime waits, as it would have anyway, for a replica that runs its lifecycle.
 * @example await forgetLifecycle(system, 'order') // { lifecycle: 'order', collection: 'Order', documents: 0, ... }
 * @throws NotFound; Refused while it has documents or live replicas
 */
export function forgetLifecycle(system: System, name: string): Promise<Registration> {
  const about = { action: 'lifecycles forget', lifecycle: name, target: `lifecycle ${name}` }
  return recorded(system, about, () => forget(system, name))
}

async function forget({ db }: System, name: string): Promise<Registration> {
  const found = (await listRegistrations({ db })).registrations.find(({ lifecycle }) => lifecycle === name)
  const missing = { reason: 'noLifecycle', name } as const
  if (!found) throw new NotFound(`no lifecycle '${name}' is registered here`, missing, 'see: phaselock lifecycles')
  const { documents, replicas, collection, handledAt } = found
  const refused = (why: string, advice: string) =>
    new Refused(
      `lifecycle ${name} was not forgotten: ${why}`,
      { reason: 'lifecycleInUse', lifecycle: name, documents, replicas },
      advice,
    )
  if (replicas.length > 0)
    throw refused(
      `live replicas run it (${replicas.join(', ')})`,
      'stop them first; one that was killed counts for two minutes',
    )
  if (documents > 0)
    throw refused(
      `${documents >= COUNT_LIMIT ? `${COUNT_LIMIT} or more` : documents} document${documents === 1 ? '' : 's'} of ${collection} ${documents === 1 ? 'is' : 'are'} in its phases, or in none that is known`,
      'start replicas that run it, or remove them first (phaselock remove, phaselock operations run remove)',
    )
  const nobody = { $expr: { $eq: [{ $size: PRESENT_REPLICAS }, 0] } }
  const { deletedCount } = await lifecyclesOf(db).deleteOne({ _id: name, handledAt, ...nobody })
  if (deletedCount === 0) throw refused('a replica has looked after it meanwhile', 'see: phaselock lifecycles')
  // If the user may not write there, replicas forget it on their own within the hour.
  const mayNot = (error: unknown) => (isServerError(error, UNAUTHORIZED) ? undefined : Promise.reject(error))
  await removeDuties(db, [`${SWEEP}${name}`, `${CENSUS}${name}`, UNHANDLED]).catch(mayNot)
  await protocolCollection<Entry>(db, CENSUS_COLLECTION).deleteOne({ _id: name }).catch(mayNot)
  return found
}

const lifecyclesOf = (db: Db): Collection<Entry> => protocolCollection(db, LIFECYCLES_COLLECTION)

/** The entries that have a name: a user may have stored anything there. */
async function entriesOf(db: Db): Promise<Entry[]> {
  const entries = await readOwnFields((how) => db.collection(LIFECYCLES_COLLECTION).find({}, how).toArray())
  return entries.filter((entry): entry is Entry => typeof entry['_id'] === 'string' && entry['_id'] !== '')
}

const listed = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((one): one is string => typeof one === 'string') : []

const collectionOf = ({ collection }: Document): string | undefined =>
  typeof collection === 'string' && COLLECTION_NAME.test(collection) ? collection : undefined

/** Counts the documents of a lifecycle. One in a phase that no lifecycle of its collection knows may belong to any of them. */
async function countDocumentsOf(db: Db, entry: Entry, entries: readonly Entry[]): Promise<number> {
  const collection = collectionOf(entry)
  if (collection === undefined) return 0
  const others = entries.filter((one) => one._id !== entry._id && collectionOf(one) === collection)
  const theirs = others.flatMap(({ _id, phases }) => [...listed(phases), removedPhase(_id)])
  return db.collection(collection).countDocuments({ phase: { $nin: [null, ...theirs] } }, { limit: COUNT_LIMIT })
}
