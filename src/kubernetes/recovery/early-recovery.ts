import { protocolCollection } from '../../database/index.js'
import { endLeasesOf } from '../../lock/index.js'
import { numbered } from '../../options/index.js'
import { type Alongside, type AlongsideContext, claimedPhases, type Logger } from '../../phases/index.js'
import { type Duration, durationMs, sleep } from '../../time/index.js'
import { KubernetesError } from '../api/errors.js'
import { Cluster } from '../cluster/cluster.js'
import { hasEnded, type PodRuns } from './container-run.js'
import { type OwnPlace, ownRun, UnknownRun } from './own-run.js'
import { watchPods } from './pod-watch.js'
import { RunRecords, SAID_EVERY_MS } from './run-records.js'

/** Options of `earlyRecovery`; in a pod with the Downward API's variables all may be omitted. */
export interface EarlyRecoveryOptions {
  /** The cluster in whose pods the replicas run. Default: KUBECONFIG, `~/.kube/config`, the pod's own account. */
  readonly cluster?: Cluster | undefined
  /** The name of this process's pod. Default: POD_NAME. */
  readonly pod?: string | undefined
  /** The namespace of the pod. Default: POD_NAMESPACE. */
  readonly namespace?: string | undefined
  /** The container of this process. Default: POD_CONTAINER, else the pod's only one. */
  readonly container?: string | undefined
  /** A label selector of the pods to watch. Default: all pods of the namespace. */
  readonly pods?: string | undefined
  /** The time for which the status of its own container must stay the same before it is trusted. Default 15 s. */
  readonly settle?: Duration | undefined
}

/** The pause before each check for leases: a claim may arrive just after its process ended, or later if the database is unreachable. */
const PASSES_MS = [0, 2_000, 5_000, 15_000]
const RETRY_MS = 60_000

/** The pod or the namespace isn't known: the message says what to set. */
export class PodUnknown extends Error {
  override readonly name = 'PodUnknown'
  constructor() {
    super('early recovery: expected POD_NAME and POD_NAMESPACE (by the Downward API), at least one is not set')
  }
}

/**
 * Ends the leases of replicas whose containers have ended as soon as the API server reports it, instead of after their
 * lockTimeout: `lifecycle.runAlongside(earlyRecovery())`, or the option `alongside` of a replica for all its lifecycles.
 * Needs the verbs get, list and watch on pods of its own namespace; without them it logs that once, and lockTimeout still works.
 * Use one for all lifecycles of a process, so that there is one watch.
 * @throws PodUnknown, InvalidDuration
 */
export function earlyRecovery(options: EarlyRecoveryOptions = {}): Alongside {
  const { pod = process.env['POD_NAME'], namespace = process.env['POD_NAMESPACE'] } = options
  if (!pod || !namespace) throw new PodUnknown()
  const container = options.container ?? (process.env['POD_CONTAINER'] || undefined)
  const cluster = options.cluster ?? Cluster.of({ name: 'own', kubeconfig: 'default' })
  const settleMs = durationMs(options.settle ?? '15s', 'settle')
  const recovery = new EarlyRecovery(cluster, { pod, namespace, container }, options.pods, settleMs)
  return (context) => recovery.runFor(context)
}

/** The early recovery of a process: one watch of the pods, for any number of lifecycles. */
class EarlyRecovery {
  private readonly users = new Set<Recoverer>()
  private watching: AbortController | undefined

  constructor(
    private readonly cluster: Cluster,
    private readonly place: OwnPlace,
    private readonly labels: string | undefined,
    private readonly settleMs: number,
  ) {}

  async runFor(context: AlongsideContext): Promise<void> {
    const user = new Recoverer(context)
    this.users.add(user)
    this.restartWatch(context)
    await this.sayWhere(user, context).finally(() => this.users.delete(user))
    if (this.users.size === 0) this.watching?.abort()
    await user.ended()
  }

  /** Begins with a list, so that a lifecycle that has just joined learns about all pods. */
  private restartWatch({ logger, clock }: AlongsideContext): void {
    this.watching?.abort()
    this.watching = new AbortController()
    const log = new OnceLog(logger)
    const { cluster, labels, place } = this
    void watchPods(
      {
        ...{ cluster, labels, clock, namespace: place.namespace },
        onHearing: (hearing) => (hearing.heard ? log.well() : log.failed('the pods are not watched', hearing.error)),
      },
      (pod) => {
        for (const user of this.users) user.podChanged(pod)
      },
      this.watching.signal,
    )
  }

  /** Publishes the container run of this replica for other replicas, until the signal aborts. */
  private async sayWhere({ records }: Recoverer, { signal, clock, logger, replica }: AlongsideContext): Promise<void> {
    const log = new OnceLog(logger)
    const { cluster, place, settleMs } = this
    while (!signal.aborted) {
      let pauseMs = SAID_EVERY_MS
      try {
        await records.say(replica, await ownRun(cluster, place, { settleMs, clock, signal }))
        log.well()
      } catch (error) {
        if (signal.aborted) return
        log.failed('the container of this replica is not reported to others', error)
        pauseMs = RETRY_MS
      }
      await sleep(pauseMs, { signal, unref: true })
    }
  }
}

/** The part of one lifecycle. */
class Recoverer {
  readonly records: RunRecords
  private readonly following = new Map<string, AbortController>()
  private readonly running = new Set<Promise<void>>()

  constructor(private readonly context: AlongsideContext) {
    this.records = new RunRecords(context.db)
    const stopAll = () => {
      for (const stop of this.following.values()) stop.abort()
    }
    context.signal.addEventListener('abort', stopAll, { once: true })
  }

  podChanged(pod: PodRuns): void {
    if (this.context.signal.aborted) return
    this.following.get(pod.uid)?.abort()
    const stop = new AbortController()
    this.following.set(pod.uid, stop)
    const following = this.follow(pod, stop.signal).finally(() => {
      if (this.following.get(pod.uid) === stop) this.following.delete(pod.uid)
      this.running.delete(following)
    })
    this.running.add(following)
  }

  async ended(): Promise<void> {
    await Promise.all(this.running)
  }

  private async follow(pod: PodRuns, signal: AbortSignal): Promise<void> {
    for (const pauseMs of PASSES_MS) {
      await sleep(pauseMs, { signal, unref: true })
      if (signal.aborted) return
      await this.pass(pod).catch((error: Error) => {
        this.context.logger.debug(`early recovery: a look failed, lockTimeout goes on: ${error.message}`)
      })
    }
  }

  private async pass(pod: PodRuns): Promise<void> {
    const { db, model, replica: self, logger } = this.context
    const ended = (await this.records.inPod(pod.uid)).filter(({ run }) => hasEnded(run, pod))
    for (const { replica, run } of ended) {
      if (replica === self) {
        logger.error(
          `early recovery: pod ${run.pod} reports that this container has ended, but it is still running: it is no longer recorded`,
        )
        await this.records.forget(self)
        continue
      }
      const leased = {
        lifecycle: model.name,
        collection: protocolCollection(db, model.collection),
        phases: claimedPhases(model),
        terms: model.settings,
      }
      const count = await endLeasesOf(db, leased, replica)
      if (count === 0) continue
      logger.info(
        `${model.name}: ${numbered(count, 'lease')} of ${replica} ${count === 1 ? 'has' : 'have'} ended: its container ${run.container} in pod ${run.pod} has terminated`,
      )
      this.context.look()
    }
  }
}

/** Logs a lasting failure once: a refusal by the server immediately, an unreachable server the third time. */
class OnceLog {
  private failures = 0
  private isReported = false

  constructor(private readonly logger: Logger) {}

  well(): void {
    this.failures = 0
    if (this.isReported) this.logger.info('early recovery works again')
    this.isReported = false
  }

  failed(what: string, error: unknown): void {
    this.failures += 1
    const isRefused = error instanceof KubernetesError || error instanceof UnknownRun
    if (this.isReported || (!isRefused && this.failures < 3)) return
    this.isReported = true
    const message = error instanceof Error ? error.message : String(error)
    this.logger.warn(`early recovery: ${what}, so leases end after their lockTimeout: ${message}`)
  }
}
