import { readFile } from 'node:fs/promises'
import { type Clock, sleep } from '../../time/index.js'
import type { Cluster } from '../cluster/cluster.js'
import { type ContainerRun, presentRun } from './container-run.js'

/** The location of this process, by its configuration. */
export interface OwnPlace {
  readonly namespace: string
  readonly pod: string
  /** Undefined: the pod's only container. */
  readonly container: string | undefined
}

/** Times of the API server are in whole seconds, and a runtime takes a moment between the two starts. */
const SAME_START_MS = 3_000
const LOOK_EVERY_MS = 1_000

/** The ticks per second of the times in /proc, the same on all platforms that Node runs on. */
const TICKS = 100
/** The 22nd field of /proc/<pid>/stat; the second one may contain spaces and ends with the last bracket. */
const STARTED_AT = 22 - 3

/** The container run of this process can't be determined. */
export class UnknownRun extends Error {
  override readonly name = 'UnknownRun'
}

/**
 * The container run that this process belongs to.
 *
 * Invariant: never an earlier run, because other replicas would then consider this process ended. The pod's status may be outdated, so the run
 * must have begun when this container's first process did, by the node's clock, and must stay the same for `settleMs`.
 * @throws UnknownRun, and the errors of a request
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

/**
 * The age of this container's first process, in milliseconds; undefined if it can't be determined. Processes that
 * start later in the same container get the same answer.
 */
export async function firstProcessAgeMs(): Promise<number | undefined> {
  try {
    const [stat, uptime] = await Promise.all([readFile('/proc/1/stat', 'utf8'), readFile('/proc/uptime', 'utf8')])
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const age = Number(uptime.split(' ')[0]) - Number(fields[STARTED_AT]) / TICKS
    return Number.isFinite(age) && age >= 0 ? age * 1_000 : undefined
  } catch {
    return undefined
  }
}
