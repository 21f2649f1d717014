import { numbered } from '../../dist/options/index.js'
import { sleep, systemClock } from '../../dist/time/index.js'
import type { DemoReplica, Fleet } from './fleet.ts'
import type { GatewayOwner } from './gateway-owner.ts'
import type { ReplicaConfig } from './gateway-replica.ts'
import { isSameLease, type Leases } from './leases.ts'
import type { HeldDocument, Ledger } from './ledger.ts'
import type { Screen } from './screen.ts'
import { waitFor } from './wait-for.ts'

/** The minimum number of documents that each fault must hit. */
export const LEAST_HIT = 5
/** The number of documents at which the demo strikes: more, because some may end before the signal arrives. */
const STRIKE_AT = 8
/** The time between two checks. Documents that both find unbegun count as claimed and not begun. */
const BETWEEN_LOOKS_MS = 150
/** The pace of a replica whose outside world has become slow: it is then in the middle of many steps, and others wait for a place. */
const SLOWED_DOWN = { leastMs: 1_500, mostMs: 2_500 }
/** The same pace, hanging until after the SIGTERM: all its places are taken, and its other claims don't begin. */
const HANGING = { leastMs: 240_000, mostMs: 240_000 }
/**
 * The first share of gateways. It is small enough that the others have free places when the killed replica's leases end: otherwise the
 * figure shows how busy they are.
 */
const FIRST_SHARE = 1 / 3
/** The second share: large enough that the replica to be stopped gets its part whatever the others take. */
const SECOND_SHARE = 5 / 6
/** The longest delay of the SIGTERM until others have free places: claims that wait for one are given back after 1.5 s. */
const MOST_WAIT_MS = 900
const FEED = 20
const MOST_FED = 1.5
/** The time between two checks. When they agree, everything that a replica sent before it was paused has arrived. */
const IN_FLIGHT_MS = 200
/**
 * The number of steps that others begin before the replica continues. Another holder has then ended a document's interrupted step and begun
 * the next, so a late outcome would rewind it.
 */
const STEPS_WHILE_PAUSED = 2
const EARLY: readonly string[] = ['Creating', 'Creating/stage']

/** Thrown when a fault could not be brought about as promised: the run then shows nothing, for better or worse. */
export class DemoNotSetUp extends Error {
  override readonly name = 'DemoNotSetUp'
  constructor(expected: string, got: string) {
    super(
      `the demo could not set up what it is meant to show: expected ${expected}, got ${got}. Run it again, on a less busy machine`,
    )
  }
}

/** The run's own database with its ledger, an owner of gateways, and the configuration of replicas of gateways. */
export interface Stage {
  readonly owner: GatewayOwner
  readonly ledger: Ledger
  readonly leases: Leases
  readonly config: Omit<ReplicaConfig, 'name'>
}

type Look = () => Promise<HeldDocument[]>

/** The faults, one after another, while the replicas work. Each waits for a state, as long as there is progress. */
export class Scenario {
  pausedReplica: DemoReplica | undefined
  private readonly parts: Stage & { documents: number; fleet: Fleet; screen: Screen }
  private waitingSinceMs: number | undefined

  constructor(parts: Stage & { documents: number; fleet: Fleet; screen: Screen }) {
    this.parts = parts
  }

  async run(): Promise<void> {
    const { fleet, owner, screen } = this.parts
    screen.stage('starting replicas a, b and c')
    const [a, b, c] = await Promise.all([fleet.start('a'), fleet.start('b'), fleet.start('c')])
    await this.insertUpTo(FIRST_SHARE)
    await this.kill(a)
    b.tell({ kind: 'pace', pace: HANGING })
    await this.insertUpTo(SECOND_SHARE)
    await this.terminate(b)
    c.tell({ kind: 'pace', pace: SLOWED_DOWN })
    await this.insertUpTo(1)
    await this.pauseAndContinue(c)
    screen.stage(`set ${await owner.deleteHalf()} gateways to Deleted`)
  }

  private async insertUpTo(share: number): Promise<void> {
    const { owner, documents, screen } = this.parts
    const count = Math.max(0, Math.ceil(documents * share) - owner.count)
    if (count === 0) return
    await owner.insert(count)
    screen.stage(`inserted ${count} gateways`)
  }

  /** kill -9; then a new replica starts, and all that the killed one held is taken over. */
  private async kill(replica: DemoReplica): Promise<void> {
    const { ledger, leases, screen, fleet } = this.parts
    const held = await this.standingStill(replica, 'leases', () => leases.heldBy(replica))
    await ledger.fault('kill', replica.name, held)
    replica.kill()
    await replica.ended
    screen.stage(
      `killed replica ${replica.name} (kill -9): it held ${numbered(held.length, 'lease')}; started replica d`,
    )
    await fleet.start('d')
    await this.until(async () => (await leases.goneOn(held)).length === held.length)
  }

  private async terminate(replica: DemoReplica): Promise<void> {
    const { ledger, leases, screen } = this.parts
    const what = 'documents claimed and not begun'
    const waiting = await this.enough(replica, what, () => this.waitingFor(replica), LEAST_HIT)
    await ledger.fault('terminate', replica.name, waiting)
    replica.stop()
    screen.stage(`stopped replica ${replica.name} (SIGTERM): it had claimed ${waiting.length} that it had not begun`)
    await this.until(async () => (await leases.goneOn(waiting)).length === waiting.length)
  }

  private async pauseAndContinue(replica: DemoReplica): Promise<void> {
    const { ledger, leases, screen, fleet, config } = this.parts
    const gateways = await this.standingStill(replica, 'gateways in an early step', () => this.inEarlyStep(replica))
    await ledger.fault('pause', replica.name, await leases.heldBy(replica))
    this.pausedReplica = replica
    screen.stage(`paused replica ${replica.name} (SIGSTOP) with ${gateways.length} gateways in an early step`)
    const goneOn = (steps: number) => this.until(async () => (await leases.goneOn(gateways, steps)).length >= LEAST_HIT)
    // The replicas that took over are then in the middle of a later step of each, where a late outcome does the most harm.
    await goneOn(1)
    for (const other of fleet.living) other.tell({ kind: 'pace', pace: SLOWED_DOWN })
    if (!(await goneOn(STEPS_WHILE_PAUSED)))
      throw new DemoNotSetUp(`others to continue with ${LEAST_HIT} gateways of the paused replica`, 'fewer')
    await ledger.fault('continue', replica.name)
    replica.resume()
    screen.stage(`resumed replica ${replica.name}: others have continued with its gateways`)
    await this.until(() => replica.refusedLateWrites > 0)
    for (const each of fleet.living) each.tell({ kind: 'pace', pace: config.pace })
  }

  /** Waits while steps begin or end anywhere. */
  private until<T>(look: () => T | false | Promise<T | false>): Promise<T | undefined> {
    return waitFor(look, { progress: () => this.parts.ledger.size(), everyMs: 20 })
  }

  /** Pauses a replica once it holds enough for a fault to show something; resolves to the documents that it holds. */
  private async standingStill(replica: DemoReplica, what: string, look: Look): Promise<HeldDocument[]> {
    for (;;) {
      await this.enough(replica, what, look)
      replica.pause()
      const now = await arrived(look)
      if (now.length >= LEAST_HIT) return now
      replica.resume() // the steps it held had ended before the signal arrived
    }
  }

  /** Waits until a replica holds this many. */
  private async enough(replica: DemoReplica, what: string, look: Look, count = STRIKE_AT): Promise<HeldDocument[]> {
    let most = 0
    const found = await this.until(async () => {
      const held = await look()
      most = Math.max(most, held.length)
      return held.length >= count && held
    })
    if (!found) throw new DemoNotSetUp(`replica ${replica.name} to have ${count} ${what}`, `${most} at most`)
    return found
  }

  /**
   * The documents that a replica has claimed and still not begun a moment later: it gives them back on its own after 1.5 s. If others are
   * faster, more
   * gateways come in until it has its share.
   */
  private async waitingFor(replica: DemoReplica): Promise<HeldDocument[]> {
    const { leases } = this.parts
    const first = await leases.notBegun(await leases.heldBy(replica))
    if (first.length >= LEAST_HIT) this.waitingSinceMs ??= systemClock.monotonicMs()
    const waitedMs = systemClock.monotonicMs() - (this.waitingSinceMs ?? Number.POSITIVE_INFINITY)
    if (waitedMs < MOST_WAIT_MS && (await this.areBusy(replica))) return []
    await sleep(BETWEEN_LOOKS_MS)
    const still = await leases.notBegun(intersection(first, await leases.heldBy(replica)))
    if (still.length < LEAST_HIT) await this.feed()
    return still
  }

  /** True if another replica is so busy that it would distort the handover. */
  private async areBusy(replica: DemoReplica): Promise<boolean> {
    const { fleet, leases, config } = this.parts
    const others = fleet.living.filter((other) => other !== replica)
    const held = await Promise.all(others.map((other) => leases.heldBy(other)))
    return held.some((documents) => documents.filter(isGateway).length > config.concurrency / 2)
  }

  /** Gateways that a replica has in a step with more to follow; more come in until there are enough. */
  private async inEarlyStep(replica: DemoReplica): Promise<HeldDocument[]> {
    const { leases, ledger } = this.parts
    const held = (await leases.heldBy(replica)).filter(isGateway)
    const begun = (await ledger.begins(held.map(({ document }) => document))).filter(({ step }) => EARLY.includes(step))
    const early = intersection(begun, held)
    await sleep(BETWEEN_LOOKS_MS)
    if (early.length < STRIKE_AT && (await leases.unclaimed()) === 0) await this.feed()
    return early
  }

  private async feed(): Promise<void> {
    const { owner, documents } = this.parts
    if (owner.count < documents * MOST_FED) await owner.insert(FEED)
  }
}

/** The documents that a paused replica holds, once everything it had sent has taken effect. */
async function arrived(look: Look): Promise<HeldDocument[]> {
  for (let before = await look(); ; ) {
    await sleep(IN_FLIGHT_MS)
    const now = await look()
    if (now.length === before.length && intersection(before, now).length === now.length) return now
    before = now
  }
}

/** The documents that are held in both under the same fence. */
const intersection = (before: readonly HeldDocument[], now: readonly HeldDocument[]): HeldDocument[] =>
  now.filter((lease) => before.some((other) => isSameLease(lease, other)))

const isGateway = ({ document }: HeldDocument) => document.startsWith('api-gateway/')
