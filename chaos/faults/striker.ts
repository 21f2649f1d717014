import { addPause, changeLockTimeout, setLimit } from '../../dist/lock/index.js'
import { apiGatewayDefinitions } from '../../dist/tasks/index.js'
import { sleep, systemClock } from '../../dist/time/index.js'
import { waitFor } from '../proof/wait-for.ts'
import { BAD_DOCUMENT_VARIANTS } from './bad-documents.ts'
import type { Faults, FaultsDatabase } from './faults-database.ts'
import type { Fault } from './plan.ts'
import type { RestlessOwner } from './restless-owner.ts'
import type { Staff } from './staff.ts'
import type { Struck } from './stand-stills.ts'

export interface StrikerOptions {
  readonly staff: Staff
  readonly owner: RestlessOwner
  readonly database: FaultsDatabase
  readonly lockTimeoutMs: number
}

const LOOK_EVERY_MS = 200
/** On a busy machine those that strike one at a time wait for each other. */
const GIVES_UP_AFTER_MS = 180_000
/** The other lock timeout: this many times the first. */
const TIMES_LONGER = 1.5

/** Makes planned faults happen. */
export class Striker {
  private longer = false
  private readonly options: StrikerOptions

  constructor(options: StrikerOptions) {
    this.options = options
  }

  /** Waits for something to hit; resolves when that is over: to when it was, or undefined if there was nothing for three minutes. */
  async strike(fault: Fault): Promise<Pick<Struck, 'fromMs' | 'toMs'> | undefined> {
    const strike = this.options.database.faults[fault.kind] ?? this.faults[fault.kind]
    const now = () => systemClock.now().getTime()
    return await waitFor(
      async () => {
        const fromMs = now()
        return (await strike?.(fault)) && { fromMs, toMs: now() }
      },
      { everyMs: LOOK_EVERY_MS, forMs: GIVES_UP_AFTER_MS },
    )
  }

  private readonly faults: Faults = {
    badDocument: ({ which }) => this.byOwner((owner) => owner.insertBad(Math.floor(which * BAD_DOCUMENT_VARIANTS))),
    handlerThrows: () => this.byOwner((owner) => owner.insert('throws')),
    handlerAlwaysThrows: () => this.byOwner((owner) => owner.insert('alwaysThrows')),
    handlerReturnsNothing: () => this.byOwner((owner) => owner.insert('returnsNothing')),
    handlerHangs: () => this.byOwner((owner) => owner.insert('hangs')),
    handlerIgnoresSignal: () => this.byOwner((owner) => owner.insert('ignoresSignal')),
    handlerBlocksLoop: () => this.byOwner((owner) => owner.insert('blocksLoop')),
    replicaKilled: async ({ which }) => this.options.staff.kill(which),
    replicaTerminated: async ({ which }) => this.options.staff.terminate(which),
    replicaPaused: ({ which, forMs }) => this.options.staff.pause(which, forMs),
    lockTimeoutChanged: () => this.changeLockTimeouts(),
    ownerEdits: () => this.byOwner((owner) => owner.edit()),
    ownerWakes: () => this.byOwner((owner) => owner.wake()),
    ownerDeletes: () => this.byOwner((owner) => owner.deleteDocument()),
    workPaused: (fault) => this.pauseWork(fault),
    limitLowered: (fault) => this.lowerLimit(fault),
  }

  private async byOwner(does: (owner: RestlessOwner) => Promise<void>): Promise<boolean> {
    await does(this.options.owner)
    return true
  }

  /** One kind of document, or all; it ends by itself. False while the database is away. */
  private async pauseWork({ which, forMs }: Fault): Promise<boolean> {
    const { db } = this.options.database
    const names = apiGatewayDefinitions().all.map(({ name }) => name)
    const chosen = names[Math.floor(which * (names.length + 1))]
    const pause = { target: { what: 'lifecycle' as const }, by: 'chaos', reason: null, end: { afterMs: forMs } }
    try {
      for (const name of chosen === undefined ? names : [chosen]) await addPause(db, name, pause)
    } catch {
      return false
    }
    await sleep(forMs)
    return true
  }

  /** To a few slots, or none, and back, however long that takes. */
  private async lowerLimit({ which, forMs }: Fault): Promise<boolean> {
    const { db } = this.options.database
    const set = (slots: number | null) =>
      setLimit(db, 'api-gateway (maxActive)', { slots }).then(
        () => true,
        () => false,
      )
    const isLowered = await set(Math.floor(which * 3))
    await sleep(isLowered ? forMs : 0)
    // It may have been executed all the same.
    while (!(await set(null))) await sleep(LOOK_EVERY_MS)
    return isLowered
  }

  /** To the longer one or back. False while an earlier change isn't over, or the database is away. */
  private async changeLockTimeouts(): Promise<boolean> {
    const { db } = this.options.database
    const ms = this.options.lockTimeoutMs * (this.longer ? 1 : TIMES_LONGER)
    try {
      const changes = await Promise.all(
        apiGatewayDefinitions().all.map(({ name }) => changeLockTimeout(db, name, Math.round(ms))),
      )
      const changed = changes.some(({ kind }) => kind === 'changed')
      // All unchanged: they were changed by a try whose answer was lost.
      if (changed || changes.every(({ kind }) => kind === 'unchanged')) this.longer = !this.longer
      return changed
    } catch {
      return false
    }
  }
}
