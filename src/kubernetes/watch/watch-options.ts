import { z } from 'zod'
import { type Duration, durationMs } from '../../time/index.js'
import type { Cluster } from '../cluster.js'
import type { KindRef, KubernetesObject } from '../objects.js'

/** A kind of objects that documents wait for. */
export interface WatchedKind extends KindRef {
  /**
   * What a handler would be told of an object: its document is woken when this changes. Default: `ready` as `HeldCluster.ready`
   * judges, `failed` where it never will be, else `waiting`. An object that was never seen counts as `waiting`.
   */
  readonly verdict?: ((object: KubernetesObject) => string) | undefined
}

export interface WatchOptions {
  readonly kinds: readonly WatchedKind[]
  /** Clusters may come and go. A cluster is the same as long as the object is; while this fails, what is watched stays. */
  readonly clusters: () => Iterable<Cluster> | Promise<Iterable<Cluster>>
  /** How often they are asked for, from 100ms. Default 5s. */
  readonly refresh?: Duration | undefined
  /** The only namespaces to watch in a cluster, where the account may not watch all of them. Default: undefined, all. */
  readonly namespaces?: ((cluster: Cluster) => readonly string[] | undefined) | undefined
  /** A watch that says nothing for so long is opened again, from 1s; servers say something every minute. Default 150s. */
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

const text = z.string('expected a text').min(1, 'expected a text')
const aFunction = z.custom((value) => typeof value === 'function', 'expected a function')

function duration(least: Duration, preset: Duration) {
  const expected = `expected a duration from ${least}, such as '${preset}'`
  const isLong = (value: unknown) => {
    try {
      return durationMs(value as string) >= durationMs(least)
    } catch {
      return false
    }
  }
  return z
    .custom<Duration>(isLong, expected)
    .default(preset)
    .transform((value) => durationMs(value))
}

const schema = z.strictObject({
  kinds: z
    .array(
      z.strictObject({ apiVersion: text, kind: text, verdict: aFunction.optional() }),
      "expected a list such as [{ apiVersion: 'apps/v1', kind: 'Deployment' }]",
    )
    .min(1, 'expected a kind at least'),
  clusters: aFunction,
  namespaces: aFunction.optional(),
  refresh: duration('100ms', '5s'),
  silence: duration('1s', '150s'),
  retryWithin: duration('250ms', '15s'),
})

/** @throws InvalidWatchOptions */
export function watchSettings(options: WatchOptions): WatchSettings {
  const parsed = schema.safeParse(options)
  if (!parsed.success) {
    const known = Object.keys(schema.shape).join(', ')
    throw new InvalidWatchOptions(
      parsed.error.issues.map((issue) =>
        issue.code === 'unrecognized_keys'
          ? `${[...issue.path, issue.keys.join(', ')].join('.')}: no such option; known: ${known}`
          : `${issue.path.join('.')}: ${issue.message}`,
      ),
    )
  }
  const { refresh, silence, retryWithin } = parsed.data
  const { kinds, clusters, namespaces } = options
  return { kinds, clusters, namespaces, refreshMs: refresh, silenceMs: silence, longestPauseMs: retryWithin }
}
