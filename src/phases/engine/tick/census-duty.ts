import type { Db, Document } from 'mongodb'
import { packageVersion } from '../../../config/index.js'
import type { CensusReader, SeenDuty, ServerClock, Shift } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import type { Census } from '../../census/census.js'
import { censusEvery, censusEveryMs } from '../../census/interval.js'
import { readBefore, storeCensus } from '../../census/store.js'
import { takeCensus, type Unclaimed } from '../../census/take.js'
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
        run: (shift: Shift) => this.take(one, name, shift),
      }
    })
  }

  /** Learns what the last census cost, whoever took it. */
  saw({ name, costMs }: SeenDuty): void {
    if (costMs !== undefined && name.startsWith(CENSUS)) this.costMs.set(name, costMs)
  }

  private async take(one: RunningLifecycle, duty: string, { by, shift }: Shift): Promise<Document> {
    const { db, clock, serverNow, serverClock, identity, sweepEveryMs, watched } = this.options
    const { model, terms, paused } = one
    const { firstSeen, othersMs } = await readBefore(db, model.name)
    const version = (await packageVersion().catch(() => undefined)) ?? '?'
    const taken = await takeCensus({
      ...{ db, model, clock, terms: terms(), paused: paused(), now: serverNow() },
      heldBackMs: serverClock.hold()?.ms,
      why: (phase) => whyUnclaimed(one, phase),
      firstSeen: (cause) => firstSeen.get(cause),
    })
    const costMs = taken.tookMs + othersMs
    const everyMs = censusEveryMs(costMs, watched(one), sweepEveryMs)
    const census: Census = { ...taken, everyMs, by: identity, version }
    await storeCensus(db, census, { duty, by, shift })
    return { lifecycle: model.name, costMs }
  }
}

const whyUnclaimed = ({ claimer }: RunningLifecycle, phase: string): Unclaimed =>
  claimer.waitsForSlots(phase) ? 'limit' : 'busy'
