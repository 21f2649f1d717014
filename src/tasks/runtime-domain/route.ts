import type { Holder, Step } from '../../phases/index.js'
import { DOMAIN_COLLECTIONS, type RuntimeDomain } from './documents.js'
import { BY_ID, type DomainStore } from './domain-store.js'
import type { Gateways } from './gateways.js'

/** Writes the Route, inactive at first. Because this domain has the reservation, another domain's record is left over from one that is gone. */
export function writeRoute(holder: Holder, host: string, doc: Readonly<RuntimeDomain>): Promise<void> {
  const { _id: domainId, gatewayId } = doc
  const route = { _id: host, gatewayId, domainId, domainFence: holder.fence, active: false }
  const keepOwn = [{ $replaceWith: { $cond: [{ $eq: ['$domainId', '$$new.domainId'] }, '$$ROOT', '$$new'] } }]
  return holder.insert(route, { collection: DOMAIN_COLLECTIONS.route }, keepOwn)
}

/**
 * Activates the route of a domain that joins a started gateway, immediately. The gateway is read after the record was written: a start or
 * stop that this read missed will see the record, and has a higher fence than the one written here.
 */
export async function activateRoute(
  store: DomainStore,
  gateways: Gateways | undefined,
  host: string,
  doc: Readonly<RuntimeDomain>,
): Promise<void> {
  const fence = await gateways?.servingFence(doc)
  if (fence === undefined) return
  await store.routes.updateOne(
    { _id: host as never, domainId: { $eq: doc._id }, gatewayFence: { $not: { $gt: fence } } },
    { $set: { active: true, gatewayFence: fence } },
    { hint: BY_ID },
  )
}

/** Deletes only the domain's own routes, and none written by a later domain with the same `_id`. */
export async function deleteRoutes(
  store: DomainStore,
  hosts: readonly string[],
  doc: Readonly<RuntimeDomain>,
  step: Pick<Step<string, never>, 'fence'>,
): Promise<void> {
  if (hosts.length === 0) return
  const own = { domainId: { $eq: doc._id }, domainFence: { $not: { $gt: step.fence } } }
  await store.routes.deleteMany({ _id: { $in: [...hosts] as never[] }, ...own }, { hint: BY_ID })
}
