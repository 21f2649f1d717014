import type { Alongside, AlongsideContext } from '../../phases/index.js'
import { sleep } from '../../time/index.js'
import type { Cluster } from '../cluster.js'
import { LABELS, labelValue } from '../ownership.js'
import { HearingLog } from './hearing-log.js'
import { KindWatch } from './kind-watch.js'
import { type Change, Verdicts } from './verdicts.js'
import { type WatchedKind, type WatchOptions, type WatchSettings, watchSettings } from './watch-options.js'

/**
 * Watches the objects that a lifecycle's documents own, and wakes a document when one of its objects becomes ready, fails, or is
 * gone: `lifecycle.runAlongside(watchObjects({ ... }))`. Needs the verbs list and watch on these kinds; without them, and
 * while a watch is broken, documents go on at the end of their pauses.
 * @throws InvalidWatchOptions
 */
export function watchObjects(options: WatchOptions): Alongside {
  const settings = watchSettings(options)
  return async (context) => {
    const watches = new Map<Cluster, Watches>()
    while (!context.signal.aborted) {
      const wanted = await clustersOf(settings, context)
      if (context.signal.aborted) break
      for (const [cluster, watched] of watches) {
        if (!wanted || wanted.has(cluster)) continue
        watched.stop()
        watches.delete(cluster)
      }
      for (const cluster of wanted ?? []) {
        const watched = watches.get(cluster) ?? new Watches(context, cluster, settings)
        watches.set(cluster, watched)
        watched.callRoll()
      }
      await sleep(settings.refreshMs, { signal: context.signal, unref: true })
    }
    for (const watched of watches.values()) watched.stop()
    await Promise.all([...watches.values()].map(({ ended }) => ended))
  }
}

/** Undefined: the clusters aren't known now, and what is watched stays. */
async function clustersOf(
  { clusters }: WatchSettings,
  { logger, model }: AlongsideContext,
): Promise<Set<Cluster> | undefined> {
  try {
    return new Set(await clusters())
  } catch (error) {
    logger.debug(`${model.name}: the clusters to watch can't be told: ${String(error)}`)
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
    private readonly settings: WatchSettings,
  ) {
    this.source = `cluster ${cluster.name}`
    this.log = new HearingLog(context.model.name, cluster.name, context.logger)
  }

  /** Starts the missing watches, ends those no longer wanted. */
  callRoll(): void {
    const places = this.places()
    if (!places) return
    const wanted = new Map<string, { kind: WatchedKind; namespace: string | undefined }>(
      this.settings.kinds.flatMap((kind) =>
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

  /** Undefined: they aren't known now, and what is watched stays. */
  private places(): readonly (string | undefined)[] | undefined {
    try {
      return this.settings.namespaces?.(this.cluster) ?? [undefined]
    } catch (error) {
      this.context.logger.debug(`${this.context.model.name}: the namespaces to watch can't be told: ${String(error)}`)
      return undefined
    }
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

  /** One wake for all that came together: a step that begins after it finds all of the changes. */
  private wake(changes: readonly Change[]): void {
    const numbered = changes.filter(({ version }) => version !== undefined)
    const rest = changes.filter(({ version }) => version === undefined)
    for (const { id, version } of numbered) {
      this.context.wake([id], { source: this.source, version: version! })
    }
    if (rest.length > 0) this.context.wake(rest.map(({ id }) => id))
  }
}
