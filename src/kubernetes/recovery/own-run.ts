import { type Clock, sleep } from '../../time/index.js'
import type { Cluster } from '../cluster.js'
import { type ContainerRun, presentRun } from './container-run.js'
import { firstProcessAgeMs } from './first-process.js'

/** Where this process runs, by its configuration. */
export interface OwnPlace {
  readonly namespace: string
  readonly pod: string
  /** Undefined: the pod's only container. */
  readonly container: string | undefined
}

/** Times of the API server are in whole seconds, and a runtime takes a moment between the two starts. */
const SAME_START_MS = 3_000
const LOOK_EVERY_MS = 1_000

/** It can't be determined which run of its container this process belongs to. */
export class UnknownRun extends Error {
  override readonly name = 'UnknownRun'
}

/**
 * The run of the container that this process is in.
 *
 * Invariant: never an earlier run, as others would then consider this process ended. The pod's status may be outdated: so the run
 * must have begun when this container's first process did, by the node's clock, and must stay the same for `settleMs`.
 * @throws UnknownRun, and what a request may throw
 */
export async function ownRun(
  cluster: Cluster,
  place: OwnPlace,
  { settleMs, clock, signal }: { settleMs: number; clock: Clock; signal: AbortSignal },
): Promise<ContainerRun> {
  let since = clock.monotonicMs()
  let settled: ContainerRun | undefined
  const triedSince = since
  while (!signal.aborted) {
    const run = await look(cluster, place, clock, signal)
    const now = clock.monotonicMs()
    if (run === undefined || run.startedAt !== settled?.startedAt || run.restarts !== settled.restarts) since = now
    settled = run
    if (settled && now - since >= settleMs) return settled
    if (!settled && now - triedSince > settleMs + SAME_START_MS) throw new UnknownRun(why(place))
    await sleep(Math.min(LOOK_EVERY_MS, settleMs), { signal, unref: true })
  }
  throw signal.reason
}

const why = ({ pod, container }: OwnPlace) =>
  `pod ${pod} reports no container${container === undefined ? '' : ` ${container}`} that began when the first process here did` +
  (container === undefined ? '; with several containers, name the own one' : '')

async function look(
  cluster: Cluster,
  { namespace, pod, container }: OwnPlace,
  clock: Clock,
  signal: AbortSignal,
): Promise<ContainerRun | undefined> {
  const ref = { apiVersion: 'v1', kind: 'Pod', metadata: { name: pod, namespace } }
  const found = await cluster.get(ref, { signal })
  const run = found && presentRun(found, container)
  const ageMs = await firstProcessAgeMs()
  if (!run || ageMs === undefined) return undefined
  const beganMs = clock.now().getTime() - ageMs
  return Math.abs(Date.parse(run.startedAt) - beganMs) <= SAME_START_MS ? run : undefined
}
