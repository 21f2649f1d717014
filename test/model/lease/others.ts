import type { Terms } from '../../../src/lock/index.js'
import { ID } from '../commands.js'
import type { Move } from '../explore.js'
import { at, type ModelDatabase } from './database.js'
import { hasRival, isHeld, stuck } from './judgement.js'
import { type Bounds, LOCK_TIMEOUT, PHASE, type Protections, RULE, termsIn } from './protections.js'
import type { Late, World } from './state.js'

/** Whoever touches a document without a task on it: owners and state rules, a writer of the old kind, early recovery after a crash. */
export class Others {
  private readonly terms: Terms

  constructor(
    private readonly database: ModelDatabase,
    private readonly protections: Protections,
    private readonly bounds: Bounds,
  ) {
    this.terms = termsIn(bounds)
  }

  *moves(world: World): Generator<Move<World>> {
    yield* this.owners(world)
    if (this.bounds.legacy) yield* this.legacyWriter(world)
    if (this.bounds.crashes) yield* this.crashes(world)
  }

  private *owners(world: World): Generator<Move<World>> {
    const { bounds, protections } = this
    const { document } = world
    if (bounds.wishes && document) {
      if (document['state'] !== RULE.when)
        yield { action: 'wish', to: { ...world, document: this.database.one({ ...document, state: RULE.when }) } }
      const write = () => protections.commands.rule(this.terms, RULE)
      const ruled = this.database.execute('rule', write, document, world.tick)
      if (ruled) {
        const to = { ...world, document: ruled, epoch: world.epoch + 1, recorded: world.epoch + 1 }
        yield {
          action: 'rule',
          to,
          broken: [...(isHeld(world) ? ['I4'] : []), ...stuck(to, this.database, this.terms)],
        }
      }
    }
    if (world.edits < (bounds.edits ?? 0)) {
      // A fence grows over a replacement as long as that isn't within one moment of the clock (docs/caveats.md).
      const edited = { ...world, epoch: world.epoch + 1, edits: world.edits + 1, tick: world.tick + 1 }
      yield { action: 'replaced', to: { ...edited, document: this.database.one({ _id: ID, phase: PHASE }) } }
      if (document) yield { action: 'deleted', to: { ...edited, document: null } }
    }
  }

  /** Leases with `lockedAt` alone, and ends within its lease: what one does that stood still for longer can't be helped. */
  private *legacyWriter(world: World): Generator<Move<World>> {
    const { document, legacy } = world
    if (!document) return
    const lockedAt = document['lockedAt'] as Date | undefined
    const isDue = lockedAt instanceof Date && lockedAt < at(world.tick - LOCK_TIMEOUT)
    if (isDue && document['phase'] === PHASE && !legacy && world.epoch < this.bounds.claims + 2) {
      const leased = this.database.one({ ...document, lockedAt: at(world.tick) })
      const to = {
        ...world,
        document: leased,
        epoch: world.epoch + 1,
        legacy: { epoch: world.epoch + 1, from: world.tick },
      }
      yield { action: 'legacy writer leases', to, broken: hasRival(world) ? ['I6'] : [] }
    }
    if (legacy && legacy.epoch === world.epoch && world.tick - legacy.from < LOCK_TIMEOUT) {
      const left = this.database.one({ ...document, phase: 'Created', lockedAt: new Date(0) })
      yield { action: 'legacy writer ends', to: { ...world, document: left, legacy: null, recorded: world.epoch } }
    }
  }

  /** One replica's process ends, and another one that knows it ends its leases, perhaps late. */
  private *crashes(world: World): Generator<Move<World>> {
    const [dead] = world.dead
    if (dead === undefined) {
      const of = (one: { replica: string }) => one.replica !== 'a'
      const to = { ...world, dead: ['a'], tasks: world.tasks.filter(of), claims: world.claims.filter(of) }
      yield { action: 'a ends', to: { ...to, checkpoints: [] } }
    } else if (!world.late.some(({ what }) => what === 'recovery')) {
      const late: Late = { what: 'recovery', replica: dead, readAt: world.tick }
      yield { action: `recovery of ${dead} starts`, to: { ...world, late: [...world.late, late] } }
    }
  }

  recoveryArrives(world: World, late: Late & { what: 'recovery' }): Move<World> {
    const { recovery } = this.protections
    const write = () => recovery(this.terms, late.readAt)
    const document = this.database.execute(`recovery ${late.replica} ${late.readAt}`, write, world.document, world.tick)
    const action = `recovery of ${late.replica} arrives`
    if (!document) return { action, to: world }
    return { action, to: { ...world, document }, broken: isHeld(world) ? ['I4'] : [] }
  }
}
