import type { Document } from 'mongodb'
import type { RuntimeDomain } from '../runtime-domain/documents.js'
import type { Gateways } from '../runtime-domain/gateways.js'
import { BY_ID, type Collections } from './collections.js'

const SERVED_PHASES = ['Starting', 'Started']

/**
 * The view that runtime domains have of the gateways of this database.
 * @param serviceNameFor the name of an instance's Service before it is placed; undefined: there are no instances
 */
export function gatewaysOf(collections: Collections, serviceNameFor?: (id: unknown) => string): Gateways {
  return {
    isOrphan: (doc) => isOrphan(collections, doc),
    async servingFence(doc) {
      const gateway = await gatewayOf(collections, doc)
      return gateway && SERVED_PHASES.includes(gateway['phase']) ? Number(gateway['fence']) : undefined
    },
    async isAtRest(doc) {
      const gateway = doc.gatewayId == null ? null : await gatewayOf(collections, doc)
      return gateway !== null && !SERVED_PHASES.includes(gateway['phase'])
    },
    async instanceOf(doc) {
      const instance = await collections.of('instance').findOne({ _id: { $eq: doc.gatewayId as never } })
      if (!instance) return undefined
      const name: string | undefined = instance['placed']?.name ?? serviceNameFor?.(doc.gatewayId)
      const port = instance['ports']?.[0]?.port
      const region = instance['placed']?.region ?? instance['region']
      return { region, service: name !== undefined && typeof port === 'number' ? { name, port } : undefined }
    },
  }
}

/**
 * True if the gateway that created a child is gone or being deleted. Such a child was created by a late step, or its gateway was
 * removed by hand: no gateway will delete it, so it deletes itself. A child that was inserted by hand has no such gateway.
 */
export async function isOrphan(collections: Collections, child: { readonly gateway?: unknown }): Promise<boolean> {
  if (child.gateway === undefined) return false
  const gateway = await gatewayBy(child.gateway, collections)
  return !gateway || gateway['phase'] === 'Deleting' || gateway['phase'] === 'Deleted'
}

async function gatewayOf(collections: Collections, doc: Readonly<RuntimeDomain>): Promise<Document | null> {
  if (doc.gateway !== undefined) return gatewayBy(doc.gateway, collections)
  const database = await collections.of('gatewayDatabase').findOne({ _id: { $eq: doc.gatewayId as never } })
  return database ? gatewayBy(database['gateway'] ?? doc.gatewayId, collections) : null
}

const gatewayBy = (id: unknown, collections: Collections) =>
  collections.of('gateway').findOne({ _id: { $eq: id as never } }, { projection: { phase: 1, fence: 1 }, hint: BY_ID })
