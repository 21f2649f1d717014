import { sleep } from '../../dist/time/index.js'
import type { Owner } from './owner.ts'
import type { Playground } from './playground.ts'
import type { Witness } from './witness.ts'

/** This many domains are timed with watches, and as many without. */
export const TIMED = 30
/** Their certificates take at least this long: by then a document's pauses have grown. */
const WAIT_SECONDS = 6
/** Then one is issued after another: if all were at once, each would wait for the rest. */
const ISSUED_EVERY_MS = 200

/** Waits for a value; undefined if there is none within the time. */
export type Until = <T>(what: () => Promise<T | false | undefined>, forMs?: number) => Promise<T | undefined>

/** Times from a certificate's Ready to its domain's Created, in ms. */
export interface Latency {
  readonly count: number
  readonly p50: number
  readonly p95: number
}

export interface TimingParts {
  readonly owner: Owner
  readonly playground: Playground
  readonly witness: Witness
  /** When each domain reached Created, by the witness's clock. */
  readonly createdMs: ReadonlyMap<string, number>
  readonly until: Until
}

/** How long it takes from a certificate's Ready to its domain's Created, when the certificate has taken a while. */
export class Timing {
  private readonly parts: TimingParts

  constructor(parts: TimingParts) {
    this.parts = parts
  }

  /** Each domain is in a namespace of its own, where at first nobody issues certificates. @param name of this run */
  async run(name: string): Promise<Latency | null> {
    const { owner, playground, until } = this.parts
    const owners = Array.from({ length: TIMED }, (_, i) => `${name}-${i + 1}`)
    await Promise.all(owners.map((one) => playground.admit(one)))
    const ids = await owner.insertDomains(owners)
    await until(async () => (await owner.waitingLong(WAIT_SECONDS)) === TIMED)
    for (const one of owners) {
      await playground.issueFor(one)
      await sleep(ISSUED_EVERY_MS)
    }
    await until(async () => ids.every((id) => this.time(id) !== undefined))
    return latencyOf(ids.map((id) => this.time(id)).filter((time) => time !== undefined))
  }

  private time(id: string): number | undefined {
    const [ready, created] = [this.parts.witness.certificateReadyMs(id), this.parts.createdMs.get(id)]
    return ready === undefined || created === undefined ? undefined : Math.max(0, created - ready)
  }
}

/** Without any times there are no percentiles. */
function latencyOf(times: readonly number[]): Latency | null {
  if (times.length === 0) return null
  const sorted = [...times].sort((a, b) => a - b)
  const at = (share: number) => Math.round(sorted[Math.ceil(share * sorted.length) - 1]!)
  return { count: sorted.length, p50: at(0.5), p95: at(0.95) }
}
