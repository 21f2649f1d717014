import type { Db, Document } from 'mongodb'
import { type Ring, type RingOnly, ringerOf, SILENT } from '../../doorbell/index.js'
import type { LifecycleModel } from '../definition/lifecycle.js'
import type { OwnerClientOptions, OwnerOptions } from './owner-types.js'

/** What an owner's writes are rung for: what a replica would find something to do in. Nobody waits for a ring. */
export class OwnerRings {
  private readonly ringer: RingOnly

  constructor(
    db: Db,
    private readonly model: LifecycleModel,
    { doorbell = 'auto' }: OwnerClientOptions,
  ) {
    this.ringer = doorbell === 'off' ? SILENT : ringerOf(db)
  }

  /** One ring, however many were inserted. */
  inserted(docs: readonly Document[], options: OwnerOptions): void {
    const due = new Set<string>()
    let isRuled = false
    for (const { phase, state } of docs) {
      if (this.isRuled(state, phase)) isRuled = true
      else if (this.model.phases.get(phase)?.kind === 'working') due.add(phase)
    }
    if (isRuled) this.look(options)
    else if (due.size > 0) this.ring({ lifecycles: [this.model.name], phases: [...due] }, options)
  }

  wantedState(state: unknown, options: OwnerOptions): void {
    if (this.isRuled(state)) this.look(options)
  }

  /** Something is due, or a rule has something to move: which, a look says. */
  look(options: OwnerOptions): void {
    this.ring({ lifecycles: [this.model.name] }, options)
  }

  flush(): Promise<void> {
    return this.ringer.flush()
  }

  /** Within a transaction nobody sees what was written before its end: so it is rung for again when the session ends. */
  private ring(ring: Ring, { session }: OwnerOptions): void {
    this.ringer.ring(ring)
    if (session?.inTransaction()) {
      const { once } = session as { once?(event: 'ended', listener: () => void): unknown }
      once?.call(session, 'ended', () => this.ringer.ring(ring))
    }
  }

  private isRuled(state: unknown, phase?: string): boolean {
    return this.model.rules.some((rule) => rule.when === state && (phase === undefined || rule.from.includes(phase)))
  }
}
