import { sleep } from '../../dist/time/index.js'
import type { Repositories } from '../../packages/repositories/dist/index.js'
import type { DemoReplica, Fleet } from '../proof/fleet.ts'
import { waitFor } from '../proof/wait-for.ts'

/**
 * The replica that works on a repository's open sync, once some batches of it are indexed.
 * @throws Error when the sync doesn't get there, or has ended
 */
export async function workerOf(
  repos: Pick<Repositories, 'show'>,
  repository: string,
  fleet: Pick<Fleet, 'replicas'>,
  batches: number,
): Promise<DemoReplica> {
  let text = ''
  const look = async () => {
    const shown = await repos.show(repository)
    text = shown.text
    if (shown.sync?.phase === 'Checking' || (shown.sync && shown.sync.status !== 'running')) return 'too late'
    if (shown.sync?.phase !== 'Indexing' || (shown.sync.next ?? 0) < batches) return false
    const by = / by (\S+?)(?:,|$)/.exec(text)?.[1]
    return fleet.replicas.find(({ name, isAlive }) => isAlive && name === by)
  }
  const found = await waitFor(look, { progress: () => text })
  if (found === undefined || found === 'too late')
    throw new Error(`expected a replica at work on a sync with ${batches} batches indexed, the repository is: ${text}`)
  return found
}

/** The time after which the writes that a paused replica had sent are done: far less than its lease. */
const ARRIVED_MS = 250

/** Pauses the replica that works on the sync, so that it holds the lease: one that was between two steps is continued, and another one is tried. */
export async function pauseWorker(...args: Parameters<typeof workerOf>): Promise<DemoReplica> {
  const [repos, repository] = args
  for (;;) {
    const worker = await workerOf(...args)
    worker.pause()
    await sleep(ARRIVED_MS)
    const { sync, text } = await repos.show(repository)
    if (sync?.phase === 'Indexing' && text.includes(` by ${worker.name}`)) return worker
    worker.resume()
  }
}
