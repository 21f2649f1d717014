import { type Document, MongoServerError } from 'mongodb'
import type { Handler, Step } from '../../phases/index.js'
import { BY_ID, type Collections } from './collections.js'
import { COLLECTIONS, type RuntimeDomain } from './documents.js'
import { Holder } from './holder.js'
import { InvalidHostName, idText, parseHostName } from './names.js'
import { isOrphan } from './parent.js'

const DUPLICATE_KEY = 11000
const ROUTED_PHASES = ['Starting', 'Started']

type Creating = Handler<'Created' | 'Deleting', RuntimeDomain>

/** Reserves the host name, then writes its routing record. */
export function domainCreating(collections: Collections): Creating {
  return async (doc, step) => {
    await collections.ensureIndexes()
    const holder = new Holder(collections.of('runtimeDomain'), doc, step)
    if (step.name !== 'route' || typeof doc.reservedHost !== 'string') return reserve(collections, holder, doc, step)
    await writeRoute(holder, doc.reservedHost, doc, step.fence)
    await activate(collections, doc.reservedHost, doc)
    return step.moveTo('Created')
  }
}

export function domainDeleting(collections: Collections): Handler<'Deleted', RuntimeDomain> {
  return async (doc, step) => {
    await collections.ensureIndexes()
    if (typeof doc.reservedHost === 'string') {
      // Only its own, and none that a later domain of the same `_id` has written.
      const own = { domainId: { $eq: doc._id }, domainFence: { $not: { $gt: step.fence } } }
      await collections.of('route').deleteOne({ _id: doc.reservedHost as never, ...own }, { hint: BY_ID })
    }
    // The host name is free from here on: its routing record is gone.
    return step.moveTo('Deleted', { set: { reservedHost: null } })
  }
}

async function reserve(
  collections: Collections,
  holder: Holder,
  doc: Readonly<RuntimeDomain>,
  step: Step<'Created' | 'Deleting', RuntimeDomain>,
): ReturnType<Creating> {
  if (await isOrphan(collections, doc)) return step.moveTo('Deleting')
  if (doc.gatewayId == null) return step.park('expected a gatewayId: whose domain is it?')
  let host: string
  try {
    host = parseHostName(doc.host)
  } catch (error) {
    if (error instanceof InvalidHostName) return step.park(error.message)
    throw error
  }
  try {
    await holder.set({ reservedHost: host })
  } catch (error) {
    if (!(error instanceof MongoServerError) || error.code !== DUPLICATE_KEY) throw error
    const owner = await collections.of('runtimeDomain').findOne({ reservedHost: host })
    if (!owner) return step.wait(`host name '${host}' to be free`)
    const whose = `RuntimeDomain ${idText(owner['_id'])} of the gateway ${idText(owner['gatewayId'])}`
    return step.park(`host name '${host}' is reserved by ${whose}`)
  }
  // Set again: the next step of a chain sees what outcomes have set, not what a handler wrote beside them.
  return step.again({ step: 'route', set: { reservedHost: host } })
}

/** Inactive at first. A record of another domain is left over from one that is gone, as this domain has the reservation. */
function writeRoute(holder: Holder, host: string, doc: Readonly<RuntimeDomain>, fence: number): Promise<void> {
  const { _id: domainId, gatewayId } = doc
  const route = { _id: host, gatewayId, domainId, domainFence: fence, active: false }
  const keepOwn = [{ $replaceWith: { $cond: [{ $eq: ['$domainId', '$$new.domainId'] }, '$$ROOT', '$$new'] } }]
  return holder.insert(route, { collection: COLLECTIONS.route }, keepOwn)
}

/**
 * A domain that joins a started gateway is routed at once. The gateway is read after the record was written: a start or stop
 * that this read didn't see will see the record, and has a higher fence than the one written here.
 */
async function activate(collections: Collections, host: string, doc: Readonly<RuntimeDomain>): Promise<void> {
  const gateway = await gatewayOf(collections, doc)
  if (!gateway || !ROUTED_PHASES.includes(gateway['phase'])) return
  const fence = Number(gateway['fence'])
  await collections
    .of('route')
    .updateOne(
      { _id: host as never, domainId: { $eq: doc._id }, gatewayFence: { $not: { $gt: fence } } },
      { $set: { active: true, gatewayFence: fence } },
      { hint: BY_ID },
    )
}

async function gatewayOf(collections: Collections, doc: Readonly<RuntimeDomain>): Promise<Document | null> {
  const byId = (id: unknown) =>
    collections.of('gateway').findOne({ _id: id as never }, { projection: { phase: 1, fence: 1 }, hint: BY_ID })
  if (doc.gateway !== undefined) return byId(doc.gateway)
  const database = await collections.of('gatewayDatabase').findOne({ _id: doc.gatewayId as never })
  return database ? byId(database['gateway'] ?? doc.gatewayId) : null
}
