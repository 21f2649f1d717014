import { readOptions, t } from '../../options/index.js'
import type { Alongside, AlongsideContext } from '../../phases/index.js'
import { type Duration, sleep } from '../../time/index.js'
import type { KindRef, KubernetesObject } from '../api/objects.js'
import type { Cluster } from '../cluster/cluster.js'
import { LABELS, labelValue } from '../cluster/ownership.js'
import { HearingLog } from './hearing-log.js'
import { KindWatch } from './kind-watch.js'
import { type Change, Verdicts } from './verdicts.js'

/** A kind of objects that documents wait for. */
export interface WatchedKind extends KindRef {
  /**
   * Judges an object as a handler would: its document is woken when the verdict changes. Default: `ready` as `HeldCluster.ready`
   * judges, `failed` if it never will be, else `waiting`. An object that was never seen counts as `waiting`.
   */
  readonly verdict?: ((object: KubernetesObject) => string) | undefined
}

/** The options of `watchObjects`. */
export interface WatchOptions {
  /** The kinds of the objects that documents wait for. */
  readonly kinds: readonly WatchedKind[]
  /**
   * Returns the clusters to watch, which may come and go. Two are the same cluster if they are the same object.
   * If this fails, the current watches go on.
   */
  readonly clusters: () => Iterable<Cluster> | Promise<Iterable<Cluster>>
  /** The interval between calls of `clusters`, from 100ms. Default 5s. */
  readonly refresh?: Duration | undefined
  /** The only namespaces to watch in a cluster, if the account may not watch all of them. Default: undefined, all. */
  readonly namespaces?: ((cluster: Cluster) => readonly string[] | undefined) | undefined
  /** A watch that is silent for this long is reopened, from 1s; servers send something every minute. Default 150s. */
  readonly silence?: Duration | undefined
  /** The longest pause before a failed or refused request is retried, from 250ms. Default 15s. */
  readonly retryWithin?: Duration | undefined
}

/** Options of `watchObjects` that can't be used; lists every problem. */
export class InvalidWatchOptions extends Error {
  override readonly name = 'InvalidWatchOptions'
  constructor(
    /** One sentence for each problem. */
    readonly problems: readonly string[],
  ) {
    super(`watchObjects: ${problems.join('; ')}`)
  }
}

const kinds = t.list(
  t.object({ apiVersion: t.name, kind: t.name, verdict: t.optional(t.aFunction()) }),
  "expected a list such as [{ apiVersion: 'apps/v1', kind: 'Deployment' }]",
)

const watchOptions = t.object({
  kinds: t.checked(kinds, ({ length }) => length > 0, 'expected a kind at least'),
  clusters: t.aFunction(),
  namespaces: t.optional(t.aFunction()),
  refresh: t.withDefault(t.duration('100ms', '1h'), '5s'),
  silence: t.withDefault(t.duration('1s', '1h'), '150s'),
  retryWithin: t.withDefault(t.duration('250ms', '1h'), '15s'),
})

/** The checked options, with durations in milliseconds. @throws InvalidWatchOptions */
function watchSettings(options: WatchOptions) {
  const read = readOptions(watchOptions, options)
  if ('problems' in read) throw new InvalidWatchOptions(read.problems)
  const { refresh: refreshMs, silence: silenceMs, retryWithin: longestPauseMs } = read.options
  return { ...options, refreshMs, silenceMs, longestPauseMs }
}

/**
 * Watches the objects that a lifecycle's documents own, and wakes a document when one of its objects becomes ready, fails, or is
 * gone: `lifecycle.runAlongside(watchObjects({ ... }))`. Needs the verbs list and watch on these kinds. Without them, and
 * while a watch is broken, documents continue at the end of their pauses.
 * @throws InvalidWatchOptions
 */
export function watchObjects(options: WatchOptions): Alongside {
  const settings = watchSettings(options)
  return async (context) => {
    const watches = new Map<Cluster, Watches>()
    while (!context.signal.aborted) {
      const wanted = await known('clusters', async () => new Set(await settings.clusters()), context)
      if (context.signal.aborted) break
      for (const [cluster, watched] of watches) {
        if (!wanted || wanted.has(cluster)) continue
        watched.stop()
        watches.delete(cluster)
      }
      for (const cluster of wanted ?? []) {
        const watched = watches.get(cluster) ?? new Watches(context, cluster, settings)
        watches.set(cluster, watched)
        await watched.callRoll()
      }
      await sleep(settings.refreshMs, { signal: context.signal, unref: true })
    }
    for (const watched of watches.values()) watched.stop()
    await Promise.all([...watches.values()].map(({ ended }) => ended))
  }
}

/** The result of `read`; undefined if it failed: then the current watches stay as they are. */
async function known<T>(
  what: string,
  read: () => T | Promise<T>,
  { logger, model }: AlongsideContext,
): Promise<T | undefined> {
  try {
    return await read()
  } catch (error) {
    logger.debug(`${model.name}: the ${what} to watch can't be told: ${String(error)}`)
    return undefined
  }
}

/** The watches of one cluster. */
class Watches {
  private readonly running = new Map<string, { stop: AbortController; ended: Promise<void> }>()
  private readonly log: HearingLog
  private readonly source: string

  constructor(
    private readonly context: AlongsideContext,
    private readonly cluster: Cluster,
    private readonly settings: ReturnType<typeof watchSettings>,
  ) {
    this.source = `cluster ${cluster.name}`
    this.log = new HearingLog(context.model.name, cluster.name, context.logger)
  }

  /** Starts missing watches and ends those that are no longer wanted. */
  async callRoll(): Promise<void> {
    const { context, cluster, settings } = this
    const everywhere: readonly (string | undefined)[] = [undefined]
    const places = await known('namespaces', () => settings.namespaces?.(cluster) ?? everywhere, context)
    if (!places) return
    const wanted = new Map<string, { kind: WatchedKind; namespace: string | undefined }>(
      settings.kinds.flatMap((kind) =>
        places.map((namespace) => [`${kind.apiVersion} ${kind.kind} ${namespace ?? ''}`, { kind, namespace }] as const),
      ),
    )
    for (const [key, { stop }] of this.running) {
      if (wanted.has(key)) continue
      stop.abort()
      this.running.delete(key)
    }
    for (const [key, { kind, namespace }] of wanted) {
      if (!this.running.has(key)) this.running.set(key, this.begin(kind, namespace))
    }
  }

  stop(): void {
    for (const { stop } of this.running.values()) stop.abort()
  }

  get ended(): Promise<unknown> {
    return Promise.all([...this.running.values()].map(({ ended }) => ended))
  }

  private begin({ verdict, ...kind }: WatchedKind, namespace: string | undefined) {
    const { context, cluster, settings, log } = this
    const { observer, model } = context
    const stop = new AbortController()
    const what = namespace === undefined ? kind.kind : `${kind.kind} in namespace ${namespace}`
    const { source } = this
    const tell = (up: boolean | undefined) => observer.watched({ lifecycle: model.name, source, what, up })
    const watch = new KindWatch({
      ...{ cluster, kind, namespace, clock: context.clock, random: Math.random },
      ...{ silenceMs: settings.silenceMs, longestPauseMs: settings.longestPauseMs },
      labels: `${LABELS.lifecycle}=${labelValue(model.name)}`,
      verdicts: new Verdicts(context.db.databaseName, verdict),
      onChanges: (changes) => this.wake(changes),
      onHearing: (hearing) => {
        if (hearing.heard) log.heard(what)
        else log.failed(what, hearing.error)
        tell(hearing.heard)
      },
    })
    return { stop, ended: watch.run(stop.signal).finally(() => tell(undefined)) }
  }

  /** Sends one wake for all unversioned changes of a batch: a step that begins after it finds all of them. */
  private wake(changes: readonly Change[]): void {
    const numbered = changes.filter(({ version }) => version !== undefined)
    const rest = changes.filter(({ version }) => version === undefined)
    for (const { id, version } of numbered) {
      this.context.wake([id], { source: this.source, version: version! })
    }
    if (rest.length > 0) this.context.wake(rest.map(({ id }) => id))
  }
}
