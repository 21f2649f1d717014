import { protocolCollection } from '../../database/index.js'
import { WITHOUT_TOKEN } from '../../lock/index.js'
import { numbered } from '../../options/index.js'
import { type Alongside, type AlongsideContext, workingPhases } from '../../phases/index.js'
import { sleep } from '../../time/index.js'
import { type WatchedKind, watchObjects } from '../watch/watch-objects.js'
import type { Region, RegionSource } from './region.js'

const LOOK_EVERY_MS = 2_000
const MOST_WOKEN = 10_000

/**
 * The work alongside a lifecycle whose documents own objects in regions: a watch of these kinds in each region, and a check for regions
 * that have become usable again, whose documents are then woken.
 * @param kinds empty: nothing is watched
 */
export function regionWorks(regions: RegionSource, kinds: readonly WatchedKind[]): readonly Alongside[] {
  return [
    ...(kinds.length > 0 ? [watching(regions, kinds)] : []),
    ...(regions.troubled ? [wakingRecovered(regions)] : []),
  ]
}

function watching(regions: RegionSource, kinds: readonly WatchedKind[]): Alongside {
  const fixed = new WeakMap<Region['cluster'], readonly string[]>()
  return watchObjects({
    kinds,
    clusters: async () => {
      const usable = await regions.usable()
      for (const { cluster, namespace } of usable) {
        if (namespace === undefined) fixed.delete(cluster)
        else fixed.set(cluster, [namespace])
      }
      return usable.map(({ cluster }) => cluster)
    },
    namespaces: (cluster) => fixed.get(cluster),
  })
}

/** Only a hint: without it documents continue at the end of their pauses. */
function wakingRecovered(regions: RegionSource): Alongside {
  return async (context) => {
    let before = new Set<string>()
    while (!context.signal.aborted) {
      const troubled = regions.troubled!().map(({ name }) => name)
      // Each is checked separately: one that hangs delays the others by no more than this round.
      const asked = await Promise.all(troubled.map((name) => regions.probe!(name)))
      const still = new Set(asked.filter(({ trouble }) => trouble !== undefined).map(({ name }) => name))
      for (const name of new Set([...before, ...troubled])) {
        if (!still.has(name)) await wakeWaitingFor(name, context).catch((error) => context.logger.debug(String(error)))
      }
      before = still
      await sleep(LOOK_EVERY_MS, { signal: context.signal, unref: true })
    }
  }
}

/** Finds the documents by the reasons that are written when a region or its cluster fails. */
async function wakeWaitingFor(name: string, { db, model, logger, wake }: AlongsideContext): Promise<void> {
  const because = new RegExp(`^(region|cluster) ${name.replace(/[^\w-]/g, '\\$&')} `)
  const found = await protocolCollection(db, model.collection)
    .find(
      { phase: { $in: workingPhases(model) }, [`${model.settings.progress}.waitingFor`]: because, ...WITHOUT_TOKEN },
      { projection: { _id: 1 }, limit: MOST_WOKEN },
    )
    .toArray()
  if (found.length === 0) return
  logger.info(
    `${model.name}: region ${name} can be used again: ${numbered(found.length, 'document goes', 'documents go')} on`,
  )
  wake(found.map(({ _id }) => _id))
}
