import { BY_ID, type Collections } from './collections.js'

/**
 * Whether the gateway that made a child is gone or going. Such a child was made by a step that came late, or its gateway was
 * removed by hand: nobody will tell it to go, so it goes by itself. A child that was inserted by hand has no such gateway.
 */
export async function isOrphan(collections: Collections, child: { readonly gateway?: unknown }): Promise<boolean> {
  if (child.gateway === undefined) return false
  const gateway = await collections
    .of('gateway')
    .findOne({ _id: child.gateway as never }, { projection: { phase: 1 }, hint: BY_ID })
  return !gateway || gateway['phase'] === 'Deleting' || gateway['phase'] === 'Deleted'
}
