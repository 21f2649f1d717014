import { z } from 'zod'
import { aFunction, aName, duration, readOptions } from '../../options/index.js'
import type { Duration } from '../../time/index.js'
import type { Cluster } from '../cluster.js'
import type { KindRef, KubernetesObject } from '../objects.js'

/** A kind of objects that documents wait for. */
export interface WatchedKind extends KindRef {
  /**
   * What a handler would find: the object's document is woken when this changes. Default: `ready` as `HeldCluster.ready`
   * judges, `failed` if it never will be, else `waiting`. An object that was never seen counts as `waiting`.
   */
  readonly verdict?: ((object: KubernetesObject) => string) | undefined
}

export interface WatchOptions {
  readonly kinds: readonly WatchedKind[]
  /** Clusters may come and go. A cluster is the same as long as the object is; if this fails, what is watched stays. */
  readonly clusters: () => Iterable<Cluster> | Promise<Iterable<Cluster>>
  /** How often `clusters` is called, from 100ms. Default 5s. */
  readonly refresh?: Duration | undefined
  /** The only namespaces to watch in a cluster, where the account may not watch all of them. Default: undefined, all. */
  readonly namespaces?: ((cluster: Cluster) => readonly string[] | undefined) | undefined
  /** A watch that is silent for this long is opened again, from 1s; servers send something every minute. Default 150s. */
  readonly silence?: Duration | undefined
  /** The longest pause before what failed, or was refused, is tried again, from 250ms. Default 15s. */
  readonly retryWithin?: Duration | undefined
}

/** The same, checked, with milliseconds. */
export interface WatchSettings extends Pick<WatchOptions, 'kinds' | 'clusters' | 'namespaces'> {
  readonly refreshMs: number
  readonly silenceMs: number
  readonly longestPauseMs: number
}

/** Options of `watchObjects` that can't be used; lists every problem. */
export class InvalidWatchOptions extends Error {
  override readonly name = 'InvalidWatchOptions'
  constructor(readonly problems: readonly string[]) {
    super(`watchObjects: ${problems.join('; ')}`)
  }
}

const watchOptions = z.strictObject({
  kinds: z
    .array(
      z.strictObject({ apiVersion: aName, kind: aName, verdict: aFunction().optional() }),
      "expected a list such as [{ apiVersion: 'apps/v1', kind: 'Deployment' }]",
    )
    .min(1, 'expected a kind at least'),
  clusters: aFunction(),
  namespaces: aFunction().optional(),
  refresh: duration('100ms', '1h').default(5_000),
  silence: duration('1s', '1h').default(150_000),
  retryWithin: duration('250ms', '1h').default(15_000),
})

/** @throws InvalidWatchOptions */
export function watchSettings(options: WatchOptions): WatchSettings {
  const read = readOptions(watchOptions, options)
  if ('problems' in read) throw new InvalidWatchOptions(read.problems)
  const { refresh, silence, retryWithin } = read.options
  const { kinds, clusters, namespaces } = options
  return { kinds, clusters, namespaces, refreshMs: refresh, silenceMs: silence, longestPauseMs: retryWithin }
}
