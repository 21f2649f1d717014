import { type Census, sumOf } from '../../phases/index.js'
import type { MixedLifecycle, RunningGraph } from '../inspect/versions.js'
import type { FoundCause } from './row.js'

/** The most names of replicas, and the most differences, in a row. */
const [MOST_NAMES, MOST_DIFFERENCES] = [3, 3]

/** A row for each lifecycle whose live replicas run different definitions, with the number of documents that only some of them handle. */
export const versionRows = (
  mixed: readonly MixedLifecycle[],
  census: ReadonlyMap<string, Census>,
  now: Date,
): FoundCause[] =>
  mixed.map(({ lifecycle, graphs, onlySome }): FoundCause => {
    const partly = census.get(lifecycle)?.phases.filter(({ phase }) => onlySome.some((one) => one.phase === phase))
    const phases = onlySome.map(({ phase, replicas }) => `${phase} (${named(replicas)})`).join(', ')
    const since = graphs.reduce<Date | null>(
      (last, one) => (one.since && (!last || one.since > last) ? one.since : last),
      null,
    )
    const texts = [
      ...(onlySome.length > 0 ? [`in phases that only some replicas handle: ${phases}`] : []),
      ...(graphs.length > 1 ? [`live replicas run different definitions: ${graphs.map(graphText).join('; ')}`] : []),
    ]
    return {
      ...{
        kind: 'versions',
        key: [...graphs.map(({ graph }) => graph ?? '?').sort(), phases],
        lifecycle,
        trend: 'unknown',
        ids: [],
        text: texts.join('; '),
      },
      versions: [...new Set(graphs.flatMap((one) => one.versions))].filter((version) => version !== '?'),
      documents: onlySome.length > 0 && partly ? sumOf(partly.map(({ documents }) => documents)) : null,
      ...{ oldest: since, firstSeen: since, lastSeen: now },
      action: () => ({ command: 'phaselock replicas', preview: 'phaselock replicas' }),
    }
  })

function graphText({ graph, replicas, versions, differences }: RunningGraph): string {
  const said = differences.slice(0, MOST_DIFFERENCES).join(', ')
  const different = said === '' ? '' : ` (${said})`
  return `${graph ?? 'unknown'} of ${versions.join(', ')} on ${named(replicas)}${different}`
}

function named(replicas: readonly string[]): string {
  const more = replicas.length - MOST_NAMES
  return `${replicas.slice(0, MOST_NAMES).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}
