import type { KubernetesObject } from '../api/objects.js'
import { KindWatch, type KindWatchOptions } from '../watch/kind-watch.js'
import { type PodRuns, runsOf } from './container-run.js'

const SILENCE_MS = 150_000
const LONGEST_PAUSE_MS = 30_000

/**
 * Follows the pods of a namespace until its signal aborts. A deleted pod reports nothing any more.
 * @param onEnd called if a container of this pod was restarted, or has ended
 */
export async function watchPods(
  options: Pick<KindWatchOptions, 'cluster' | 'namespace' | 'labels' | 'clock' | 'onHearing'>,
  onEnd: (pod: PodRuns) => void,
  signal: AbortSignal,
): Promise<void> {
  const reported = new Map<string, string>()
  let listed = new Set<string>()
  const saw = (pod: KubernetesObject) => {
    const runs = runsOf(pod)
    listed.add(runs.uid)
    const now = JSON.stringify(runs)
    const isNews = runs.containers.some(({ restarts, ended }) => restarts > 0 || ended.length > 0)
    if (isNews && reported.get(runs.uid) !== now) onEnd(runs)
    if (isNews) reported.set(runs.uid, now)
    return undefined
  }
  const lost = (pod: KubernetesObject) => {
    reported.delete(pod.metadata.uid ?? '')
    listed.delete(pod.metadata.uid ?? '')
    return undefined
  }
  const beginList = () => {
    listed = new Set()
  }
  // Forget pods that went while the watch was down.
  const endList = () => {
    for (const uid of reported.keys()) if (!listed.has(uid)) reported.delete(uid)
    return []
  }
  const watch = new KindWatch({
    ...options,
    kind: { apiVersion: 'v1', kind: 'Pod' },
    verdicts: { saw, lost, beginList, endList },
    ...{ silenceMs: SILENCE_MS, longestPauseMs: LONGEST_PAUSE_MS, random: Math.random, onChanges: () => undefined },
  })
  await watch.run(signal)
}
