import type { Db } from 'mongodb'
import { changeLockTimeout } from '../../../lock/index.js'
import { apiGatewayDefinitions } from '../../../tasks/index.js'
import { sleep } from '../../../time/index.js'
import { BAD_DOCUMENT_VARIANTS } from './bad-documents.js'
import type { Crew } from './crew.js'
import type { ProxyMode } from './database-proxy.js'
import type { FaultsDatabase } from './faults-database.js'
import type { FaultKind, PlannedFault } from './plan.js'
import type { RestlessOwner } from './restless-owner.js'

export interface StrikerOptions {
  readonly crew: Crew
  readonly owner: RestlessOwner
  readonly database: FaultsDatabase
  readonly lockTimeoutMs: number
}

const SLOW_MS = 250
/** The other lock timeout: so many times the first. */
const TIMES_LONGER = 1.5

/** Makes planned faults happen. Each resolves when it is over: true if it struck, false if there was nothing to hit. */
export class Striker {
  private longer = false

  constructor(private readonly options: StrikerOptions) {}

  readonly strike = (fault: PlannedFault): Promise<boolean> => this.faults[fault.kind](fault)

  private readonly faults: Record<FaultKind, (fault: PlannedFault) => Promise<boolean>> = {
    badDocument: ({ which }) => this.byOwner((owner) => owner.insertBad(Math.floor(which * BAD_DOCUMENT_VARIANTS))),
    handlerThrows: () => this.byOwner((owner) => owner.insert('throws')),
    handlerAlwaysThrows: () => this.byOwner((owner) => owner.insert('alwaysThrows')),
    handlerReturnsNothing: () => this.byOwner((owner) => owner.insert('returnsNothing')),
    handlerHangs: () => this.byOwner((owner) => owner.insert('hangs')),
    handlerIgnoresSignal: () => this.byOwner((owner) => owner.insert('ignoresSignal')),
    handlerBlocksLoop: () => this.byOwner((owner) => owner.insert('blocksLoop')),
    replicaKilled: async ({ which }) => this.options.crew.kill(which),
    replicaTerminated: async ({ which }) => this.options.crew.terminate(which),
    replicaPaused: ({ which, forMs }) => this.options.crew.pause(which, forMs),
    databaseKilled: () => this.options.database.killEngine(),
    databaseBlackholed: ({ forMs }) => this.disturb({ kind: 'blackhole' }, forMs),
    databaseSlow: ({ forMs }) => this.disturb({ kind: 'slow', ms: SLOW_MS }, forMs),
    databaseNotPrimary: ({ forMs }) => this.disturb({ kind: 'notPrimary' }, forMs),
    lockTimeoutChanged: () => this.changeLockTimeouts(),
    ownerEdits: () => this.byOwner((owner) => owner.edit()),
    ownerWakes: () => this.byOwner((owner) => owner.wake()),
    ownerDeletes: () => this.byOwner((owner) => owner.deleteDocument()),
  }

  private async byOwner(does: (owner: RestlessOwner) => Promise<void>): Promise<boolean> {
    await does(this.options.owner)
    return true
  }

  private async disturb(mode: ProxyMode, forMs: number): Promise<boolean> {
    const { proxy } = this.options.database
    proxy.set(mode)
    await sleep(forMs, { unref: true })
    proxy.set({ kind: 'pass' })
    return true
  }

  /** To the longer one or back. False while an earlier change isn't over, or the database is away. */
  private async changeLockTimeouts(): Promise<boolean> {
    const db: Db = this.options.database.connection.db
    const ms = this.options.lockTimeoutMs * (this.longer ? 1 : TIMES_LONGER)
    try {
      const changes = await Promise.all(
        apiGatewayDefinitions().all.map(({ name }) => changeLockTimeout(db, name, Math.round(ms))),
      )
      const changed = changes.some(({ kind }) => kind === 'changed')
      if (changed) this.longer = !this.longer
      return changed
    } catch {
      return false
    }
  }
}
