import { sleep } from '../../time/index.js'
import type { Breakable } from './broken-protocols.js'
import type { Fleet } from './fleet.js'
import type { GatewayOwner } from './gateway-owner.js'
import { slowness } from './judgement.js'
import type { Leases } from './leases.js'
import type { Ledger } from './ledger.js'
import type { Fault, HeldDocument } from './ledger-entry.js'
import type { Pace } from './observed-handlers.js'
import { type ReplicaLink } from './replica-link.js'
import type { Screen } from './screen.js'
import { waitFor } from './wait-for.js'

/** Each fault must hit at least so many documents. */
export const LEAST_HIT = 5
/** The demo strikes when it sees more: some may end before the signal arrives. */
const STRIKE_AT = 8
/** What is to be found claimed and not begun must be so in two looks, this far apart. */
const BETWEEN_LOOKS_MS = 150
/** The pace of a replica whose outside world has become slow: it is then in the middle of many steps, and others wait for a place. */
const SLOWED_DOWN = { leastMs: 1_500, mostMs: 2_500 }
/** The same, hanging until after the SIGTERM: all its places are taken, and what else it has claimed doesn't begin. */
const HANGING = { leastMs: 30_000, mostMs: 30_000 }
/** Few enough that the others have free places when the killed replica's leases end: else the figure would show how busy they are. */
const FIRST_SHARE = 1 / 3
/** So many that the replica to be stopped gets its part whatever the others take. */
const SECOND_SHARE = 5 / 6
/** As few documents that nobody has claimed may wait at the SIGTERM: what it gives back comes after them. */
const MOST_UNCLAIMED = 5
const FEED = 20
const MOST_FED = 1.5
const STRIKE_WITHIN_MS = 20_000
/** Without a protection what is waited for may never come, and nothing depends on it. */
const BROKEN_STRIKE_WITHIN_MS = 7_000
/** For commands that a replica had sent before it was hit to arrive at the server. */
const IN_FLIGHT_MS = 200
const LATE_WRITES_WITHIN_MS = 8_000
/** Another holder has then ended the interrupted step of a document and begun the next: a late outcome would rewind it. */
const STEPS_WHILE_PAUSED = 2
const EARLY: readonly string[] = ['Creating', 'Creating/stage']

/** Thrown when a fault could not be brought about as promised: nothing was shown then, for better or worse. */
export class DemoNotSetUp extends Error {
  override readonly name = 'DemoNotSetUp'
  constructor(expected: string, got: string) {
    super(
      `the demo could not set up what it is to show: expected ${expected}, got ${got}. Run it again, on a less busy machine`,
    )
  }
}

export interface ScenarioParts {
  readonly documents: number
  readonly lockTimeoutMs: number
  readonly broken: Breakable | null
  /** Of each lifecycle on each replica. */
  readonly concurrency: number
  /** The usual one. */
  readonly pace: Pace
  readonly fleet: Fleet
  readonly owner: GatewayOwner
  readonly ledger: Ledger
  readonly leases: Leases
  readonly screen: Screen
}

/** The faults, one after another, while the replicas work. Each waits for a state, never for a time. */
export class Scenario {
  private paused: ReplicaLink | undefined
  /** When the replicas were at work, by the screen. */
  readyAtSeconds = 0

  constructor(private readonly parts: ScenarioParts) {}

  /** The replica that was paused. */
  get pausedReplica(): ReplicaLink | undefined {
    return this.paused
  }

  /** Without tokens nobody can tell who holds what, so it isn't worth while to wait for it. */
  private get seesHolders(): boolean {
    return this.parts.broken !== 'no-token'
  }

  async run(): Promise<void> {
    const { fleet, owner, screen, broken, lockTimeoutMs } = this.parts
    screen.stage('starting replicas a, b and c')
    const ahead = broken === 'client-clock' ? { clockAheadMs: 2 * lockTimeoutMs } : {}
    const [a, b, c] = await Promise.all([fleet.start('a'), fleet.start('b', ahead), fleet.start('c')])
    this.readyAtSeconds = screen.seconds
    await this.insertUpTo(FIRST_SHARE)
    await this.kill(a)
    b.tell({ kind: 'pace', pace: HANGING })
    await this.insertUpTo(SECOND_SHARE)
    await this.terminate(b)
    c.tell({ kind: 'pace', pace: SLOWED_DOWN })
    await this.insertUpTo(1)
    await this.pauseAndContinue(c)
    await owner.deleteHalf()
    screen.stage(`set ${owner.deletedCount} gateways to Deleted`)
  }

  private async insertUpTo(share: number): Promise<void> {
    const { owner, documents, screen } = this.parts
    const count = Math.max(0, Math.ceil(documents * share) - owner.count)
    if (count === 0) return
    await owner.insert(count)
    screen.stage(`inserted ${count} gateways`)
  }

  /** kill -9; then a new replica starts, and all that the killed one held is taken over. */
  private async kill(replica: ReplicaLink): Promise<void> {
    const { ledger, leases, screen, fleet, lockTimeoutMs } = this.parts
    await this.strike(replica, 'leases', () => leases.heldBy(replica))
    await ledger.fault('kill', replica.name)
    replica.kill()
    await replica.exited
    const held = await this.heldAfter('kill', replica)
    screen.stage(`killed replica ${replica.name} (kill -9): it held ${held.length} leases; started replica d`)
    await fleet.start('d')
    await waitFor(async () => (await leases.goneOn(held)).length === held.length, { forMs: 3 * lockTimeoutMs })
  }

  private async terminate(replica: ReplicaLink): Promise<void> {
    const { ledger, leases, screen, lockTimeoutMs } = this.parts
    const waiting = await this.strike(
      replica,
      'documents claimed and not begun',
      () => this.waitingFor(replica),
      LEAST_HIT,
    )
    await ledger.fault('terminate', replica.name, waiting)
    replica.terminate()
    screen.stage(`stopped replica ${replica.name} (SIGTERM): it had claimed ${waiting.length} that it had not begun`)
    await waitFor(async () => (await leases.goneOn(waiting)).length === waiting.length, { forMs: lockTimeoutMs })
  }

  private async pauseAndContinue(replica: ReplicaLink): Promise<void> {
    const { ledger, leases, screen, fleet, pace, broken, lockTimeoutMs } = this.parts
    const early = await this.strike(replica, 'gateways in an early step', () => this.inEarlyStep(replica))
    await ledger.fault('pause', replica.name)
    replica.pause()
    this.paused = replica
    const held = await this.heldAfter('pause', replica)
    screen.stage(`paused replica ${replica.name} (SIGSTOP): it holds ${held.length} leases`)
    const gateways = intersection(early, held)
    const goneOn = (steps: number) =>
      waitFor(
        async () => {
          const documents = await leases.goneOn(gateways, steps)
          return documents.length >= LEAST_HIT && documents
        },
        { forMs: (this.seesHolders ? 5 : 2) * lockTimeoutMs },
      )
    // Who has taken over is then in the middle of a later step of each, where a late outcome does the most harm.
    const takenOver = await goneOn(1)
    for (const other of fleet.living) other.tell({ kind: 'pace', pace: SLOWED_DOWN })
    const later = takenOver && (await goneOn(STEPS_WHILE_PAUSED))
    if (!later) this.missed(`others to go on with ${LEAST_HIT} gateways of the paused replica`, 'fewer')
    await ledger.fault('continue', replica.name)
    replica.continue()
    screen.stage(`continued replica ${replica.name}: others have gone on with ${later?.length ?? 0} of its gateways`)
    await waitFor(() => replica.refusedLateWrites > 0, { forMs: broken ? lockTimeoutMs : LATE_WRITES_WITHIN_MS })
    for (const each of fleet.living) each.tell({ kind: 'pace', pace })
  }

  /** Waits until a replica has enough for a fault to show something. */
  private async strike(
    replica: ReplicaLink,
    what: string,
    look: () => Promise<HeldDocument[]>,
    enough = STRIKE_AT,
  ): Promise<HeldDocument[]> {
    let most = 0
    const found = await waitFor(
      async () => {
        const held = await look()
        most = Math.max(most, held.length)
        return held.length >= enough && held
      },
      { forMs: this.parts.broken ? BROKEN_STRIKE_WITHIN_MS : STRIKE_WITHIN_MS * slowness(), everyMs: 10 },
    )
    if (!found) this.missed(`replica ${replica.name} to have ${enough} ${what}`, `${most} at most`)
    return found ?? []
  }

  /**
   * What a replica has claimed and still not begun a while later, when nothing else waits for a place. Where others were
   * faster, more gateways come in until it has got its part.
   */
  private async waitingFor(replica: ReplicaLink): Promise<HeldDocument[]> {
    const { leases } = this.parts
    const first = await leases.notBegun(await leases.heldBy(replica))
    await sleep(BETWEEN_LOOKS_MS)
    if ((await leases.unclaimed()) > MOST_UNCLAIMED || (await this.areBusy(replica))) return []
    const still = await leases.notBegun(intersection(first, await leases.heldBy(replica)))
    if (still.length < LEAST_HIT) await this.feed()
    return still
  }

  /** Gateways that a replica has in a step with more to follow; more come in until there are enough. */
  private async inEarlyStep(replica: ReplicaLink): Promise<HeldDocument[]> {
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

  /** Whether another replica has so much to do that it couldn't take over what this one gives back. */
  private async areBusy(replica: ReplicaLink): Promise<boolean> {
    const { fleet, leases, concurrency } = this.parts
    const others = fleet.living.filter((other) => other !== replica)
    const held = await Promise.all(others.map((other) => leases.heldBy(other)))
    return held.some((documents) => documents.filter(isGateway).length > concurrency / 2)
  }

  /** What a replica that can't do anything any more turns out to hold. */
  private async heldAfter(fault: Fault, replica: ReplicaLink): Promise<HeldDocument[]> {
    await sleep(IN_FLIGHT_MS)
    const held = await this.parts.leases.heldBy(replica)
    await this.parts.ledger.heldAt(fault, held)
    if (held.length < LEAST_HIT) {
      this.missed(`replica ${replica.name} to hold ${LEAST_HIT} leases at its ${fault}`, `${held.length}`)
    }
    return held
  }

  /** Without a protection the replicas may get into each other's way before a fault: the figures will tell. */
  private missed(expected: string, got: string): void {
    if (!this.parts.broken) throw new DemoNotSetUp(expected, got)
    this.parts.screen.note(`expected ${expected}, got ${got}`)
  }
}

/** What is held in both under the same fence. */
function intersection(before: readonly HeldDocument[], now: readonly HeldDocument[]): HeldDocument[] {
  const fences = new Map(before.map(({ document, fence }) => [document, fence]))
  return now.filter(({ document, fence }) => fences.get(document) === fence)
}

const isGateway = ({ document }: HeldDocument) => document.startsWith('api-gateway/')
