import type { Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { LIFECYCLES_COLLECTION } from '../../lock/index.js'
import type { Workspace } from '../workspace.js'

/** The documents of a collection that a region is needed for. */
export interface RegionUse {
  readonly collection: string
  /** Whose objects are in it. */
  readonly placed: number
  /** That name it, and have nothing anywhere yet. */
  readonly named: number
}

/**
 * Looks through the collections of all lifecycles: those that are known here, and those that any replica has registered. Documents that have
 * ended don't count. Without an index on these fields each collection is read in full.
 */
export async function usesOfRegion(
  { connection: { db }, lifecycles }: Workspace,
  region: string,
): Promise<RegionUse[]> {
  const registered = await protocolCollection(db, LIFECYCLES_COLLECTION).distinct('collection')
  const collections = new Set([...lifecycles.map(({ model }) => model.collection), ...registered.map(String)])
  const uses: RegionUse[] = []
  for (const collection of [...collections].sort()) {
    const documents = protocolCollection<Document>(db, collection)
    const ended = lifecycles
      .filter(({ model }) => model.collection === collection)
      .flatMap(({ model }) => [...model.phases.values()].filter(({ kind }) => kind === 'final'))
    const phase = { $nin: ended.map(({ name }) => name) }
    const placed = await documents.countDocuments({ 'placed.region': region, phase })
    const named = await documents.countDocuments({ region, 'placed.region': { $exists: false }, phase })
    if (placed + named > 0) uses.push({ collection, placed, named })
  }
  return uses
}
