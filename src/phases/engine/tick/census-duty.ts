import type { Db, Document } from 'mongodb'
import { packageVersion } from '../../../config/index.js'
import type { CensusReader, SeenDuty, ServerClock, Shift } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import type { Census } from '../../census/census.js'
import { censusEvery, censusEveryMs } from '../../census/interval.js'
import { type CensusOfDuty, storeCensuses } from '../../census/store.js'
import { type CensusMemory, newMemory } from '../../census/survey.js'
import { CENSUS_WITHIN_MS, takeCensus, type Unclaimed } from '../../census/take.js'
import type { RunningLifecycle } from '../lifecycle/running-lifecycle.js'

/** The duty that counts the documents of a lifecycle; each lifecycle has its own, because a replica need not run all of them. */
export const CENSUS = 'census of '
/** The name of the duty that counted them in older versions. */
export const SWEEP = 'sweep of '

export interface CensusDutyOptions {
  readonly db: Db
  readonly identity: string
  readonly clock: Clock
  readonly serverNow: () => Date
  readonly serverClock: Pick<ServerClock, 'hold'>
  /** The interval while nobody looks; 0: none is taken. */
  readonly sweepEveryMs: number
  /** What looks at a lifecycle's census now. */
  readonly watched: (one: RunningLifecycle) => CensusReader | undefined
}

/** The censuses of a replica's lifecycles, as duties. */
export class CensusDuties {
  private readonly costMs = new Map<string, number>()
  private readonly memories = new Map<string, CensusMemory>()
  /** Those of this shift, until they are stored. */
  private readonly taken: CensusOfDuty[] = []

  constructor(private readonly options: CensusDutyOptions) {}

  of(running: readonly RunningLifecycle[]) {
    const { sweepEveryMs, watched } = this.options
    if (sweepEveryMs === 0) return []
    return running.map((one) => {
      const name = `${CENSUS}${one.model.name}`
      const reader = watched(one)
      return {
        name,
        everyMs: censusEveryMs(this.costMs.get(name) ?? 0, reader, sweepEveryMs),
        everyOnServer: censusEvery(reader, sweepEveryMs),
        mostMs: CENSUS_WITHIN_MS,
        run: () => this.take(one, name),
      }
    })
  }

  /** Learns what the last census cost, whoever took it. */
  saw({ name, costMs }: SeenDuty): void {
    if (costMs !== undefined && name.startsWith(CENSUS)) this.costMs.set(name, costMs)
  }

  /**
   * Stores the censuses of a shift, with one command for all of them.
   * @throws the database's own errors: then none of them counts as taken
   */
  async store(shift: Shift): Promise<void> {
    const taken = this.taken.splice(0)
    if (taken.length > 0) await storeCensuses(this.options.db, taken, shift)
  }

  private async take(one: RunningLifecycle, duty: string): Promise<Document> {
    const { db, clock, serverNow, serverClock, identity, sweepEveryMs, watched } = this.options
    const { model, terms, paused } = one
    const memory = this.memories.get(duty) ?? newMemory()
    this.memories.set(duty, memory)
    const version = (await packageVersion().catch(() => undefined)) ?? '?'
    const { taken, othersMs } = await takeCensus({
      ...{ db, model, clock, memory, terms: terms(), paused: paused(), now: serverNow() },
      heldBackMs: serverClock.hold()?.ms,
      why: (phase) => whyUnclaimed(one, phase),
    })
    const costMs = taken.tookMs + othersMs
    const everyMs = censusEveryMs(costMs, watched(one), sweepEveryMs)
    const census: Census = { ...taken, everyMs, by: identity, version }
    this.taken.push({ duty, census })
    return { lifecycle: model.name, costMs }
  }
}

const whyUnclaimed = ({ claimer }: RunningLifecycle, phase: string): Unclaimed =>
  claimer.waitsForSlots(phase) ? 'limit' : 'busy'
