import type { Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import type { Cluster, Regions } from '../../kubernetes/index.js'
import { LIFECYCLES_COLLECTION } from '../../lock/index.js'
import { NotFound, Refused } from '../system/errors.js'
import type { System } from '../system/system.js'
import type { Force } from './as-owner.js'

/** A Region document, and its availability. */
export interface RegionState {
  readonly name: string
  readonly usable: boolean
  /** The reason why it can't be used. */
  readonly trouble: string | undefined
}

/** The documents of a collection that need a region. */
export interface RegionUse {
  readonly collection: string
  /** The number of documents whose objects are in it. */
  readonly placed: number
  /** The number of documents that name it and have no objects anywhere yet. */
  readonly named: number
}

/**
 * All regions, each after a request to its cluster: 5 s at most, all together.
 * @param home.kubeconfig a kubeconfig file of the cluster whose Secrets hold the regions' kubeconfigs. Default: as kubectl finds it
 * @example await listRegions(system) // [{ name: 'eu-1', usable: true, trouble: undefined }]
 */
export function listRegions(system: System, home: { kubeconfig?: string | undefined } = {}): Promise<RegionState[]> {
  return withRegions(system, home.kubeconfig, async (regions) =>
    (await regions.list()).map(({ name, trouble }) => ({ name, usable: trouble === undefined, trouble })),
  )
}

/** Calls a function with the regions. Kubernetes code is loaded only here. */
export async function withRegions<T>(
  { db }: System,
  kubeconfig: string | undefined,
  act: (regions: Regions, home: Cluster) => Promise<T>,
): Promise<T> {
  const kubernetes = await import('../../kubernetes/index.js')
  const where = kubeconfig === undefined ? 'default' : { file: kubeconfig }
  const home = kubernetes.Cluster.of({ name: 'home', kubeconfig: where })
  const regions = new kubernetes.Regions({ db, home })
  try {
    return await act(regions, home)
  } finally {
    regions.close()
    home.close()
  }
}

/**
 * Removes a Region document. Documents that name it, or are placed in it, wait until a region of that name exists again.
 * @param force even if there are such documents
 * @example await removeRegion(system, 'eu-1') // { removed: { _id: 'eu-1', ... }, inUse: [] }
 * @throws NotFound; Refused while documents name it or are placed in it
 */
export async function removeRegion(
  system: System,
  name: string,
  { force = false }: Force = {},
): Promise<{ readonly removed: Document; readonly inUse: readonly RegionUse[] }> {
  const { REGION_COLLECTION } = await import('../../kubernetes/index.js')
  const all = protocolCollection<Document & { _id: string }>(system.db, REGION_COLLECTION)
  const missing = { reason: 'noRegion', name } as const
  const removed = await all.findOne({ _id: name })
  if (!removed) throw new NotFound(`there is no Region ${name}`, missing, 'see: phaselock regions')
  const uses = await usesOf(system, name)
  if (uses.length > 0 && !force) {
    throw new Refused(
      `Region ${name} was not removed: ${usesText(uses)}. Have them deleted first (set-state <id> Deleted), or use --force: they then wait until there is a Region of that name again`,
      { reason: 'regionInUse', region: name, uses },
    )
  }
  const { deletedCount } = await all.deleteOne({ _id: name })
  if (deletedCount === 0) throw new NotFound(`Region ${name} has been deleted in the meantime`, missing)
  return { removed, inUse: uses }
}

/**
 * The uses of a region in the collections of all lifecycles: those that are known here, and those that any replica has registered.
 * Documents that have
 * ended don't count. Without an index on these fields each collection is read in full.
 */
async function usesOf({ db, models }: System, region: string): Promise<RegionUse[]> {
  const registered = await protocolCollection(db, LIFECYCLES_COLLECTION).distinct('collection')
  const collections = new Set([...models.map(({ collection }) => collection), ...registered.map(String)])
  const uses: RegionUse[] = []
  for (const collection of [...collections].sort()) {
    const documents = protocolCollection<Document>(db, collection)
    const phases = models
      .filter((model) => model.collection === collection)
      .flatMap((model) => [...model.phases.values()])
    const phase = { $nin: phases.filter(({ kind }) => kind === 'final').map(({ name }) => name) }
    const placed = await documents.countDocuments({ 'placed.region': region, phase })
    const named = await documents.countDocuments({ region, 'placed.region': { $exists: false }, phase })
    if (placed + named > 0) uses.push({ collection, placed, named })
  }
  return uses
}

/** `Instance: 3 placed in it, 1 that name it; ...` */
export const usesText = (uses: readonly RegionUse[]): string =>
  uses
    .map(({ collection, placed, named }) => {
      const parts = [placed > 0 ? `${placed} placed in it` : '', named > 0 ? `${named} that name it` : '']
      return `${collection}: ${parts.filter(Boolean).join(', ')}`
    })
    .join('; ')
