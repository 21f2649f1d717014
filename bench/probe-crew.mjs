import { setTimeout as sleep } from 'node:timers/promises'
import { ensureLockIndexes } from '../dist/lock/index.js'
import { ownerProcess } from './owner.mjs'
import { monotonicMs, PROBES } from './probes.mjs'
import { startReplica } from './replica.mjs'

const LOOK_EVERY_MS = 20

/**
 * Replicas that run replicas/probes.mjs on a database of their own, with two owners beside them, one for probes and one
 * for load, so that the load doesn't delay the probes' clock.
 */
export class ProbeCrew {
  /** When a probe's handler began, by tag. */
  began = new Map()
  woken = []
  recordMs = []
  #handled = new Map()

  static async start(server, size, { lifecycles = 'probes.mjs', nodeOptions = [] } = {}) {
    const crew = new ProbeCrew()
    crew.db = server.database()
    await ensureLockIndexes(crew.db.collection(PROBES))
    const { databaseName: database } = crew.db
    // The driver tells a client's commands where its connection string asks for it.
    const uri = `${server.uri}${server.uri.includes('?') ? '&' : '?'}monitorCommands=true`
    crew.replicas = await Promise.all(
      Array.from({ length: size }, (_, i) =>
        // Silent, as a document that is parked is an error in the log.
        startReplica({ uri, database, lifecycles, name: `probe-${i}`, nodeOptions, logLevel: 'silent' }),
      ),
    )
    for (const [i, replica] of crew.replicas.entries()) replica.on((message) => crew.#received(i, message))
    crew.prober = await ownerProcess(server.uri, database)
    crew.loader = await ownerProcess(server.uri, database)
    return crew
  }

  /** Handlers that have ended, of all replicas; each tells it ten times a second. */
  get handled() {
    return [...this.#handled.values()].reduce((sum, count) => sum + count, 0)
  }

  /**
   * Probes, one after the other.
   * @param {{ by: 'doorbell' | 'tick', count: number, everyMs: number }} probe
   * @returns for each the milliseconds from its acknowledged insert to its handler's begin, 0 where that came first
   */
  async pickUps({ by, count, everyMs }) {
    const tag = `${by}-${this.began.size}`
    const { acknowledged } = await this.prober.probe({ by, tag, count, everyMs })
    await until(() => acknowledged.every(([each]) => this.began.has(each)), 'each probe to begin')
    return acknowledged.map(([each, atMs]) => Math.max(0, this.began.get(each) - atMs))
  }

  /** Documents a second that these replicas get done, from the insert of so many at once. */
  async capacity(count) {
    const before = this.handled
    const { startedMs } = await this.loader.burst(count)
    await until(() => this.handled - before >= count, 'a burst to be done')
    return (count / (monotonicMs() - startedMs)) * 1_000
  }

  async stop() {
    await Promise.all([this.prober.close(), this.loader.close()])
    await Promise.all(this.replicas.map((replica) => replica.end()))
  }

  #received(replica, { began, atMs, handled, woken, lateMs, recordMs }) {
    if (began !== undefined) this.began.set(began, atMs)
    if (handled !== undefined) this.#handled.set(replica, handled)
    if (woken !== undefined) this.woken.push({ woken, lateMs })
    if (recordMs !== undefined) this.recordMs.push(recordMs)
  }
}

/** Waits for a condition. @throws when it isn't met in time */
export async function until(condition, what, withinMs = 30_000) {
  const endMs = monotonicMs() + withinMs
  while (!(await condition())) {
    if (monotonicMs() > endMs) throw new Error(`waited ${withinMs / 1_000} s for ${what}, in vain`)
    await sleep(LOOK_EVERY_MS)
  }
}
