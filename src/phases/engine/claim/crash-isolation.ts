import type { Document } from 'mongodb'
import type { Candidates, PhaseMemory, Reach, SelectionPolicy } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import type { LifecycleSettings } from '../../model/settings.js'

/** The time that a document waits to be held alone before it gets its turn: then nothing more is claimed, and chains yield. */
const PATIENCE_MS = 5_000
/** The time that held documents then have to end. Unsuspected ones that still run after it aren't waited for. */
const DRAIN_MS = 1_000
/** The longest time without claims, which a look a second falls into. If another suspect still runs, the document waits on while claims go on. */
const CLOSED_MOST_MS = 2_500
/** The time that a document is alone. After it others may be claimed, so that a long step on its last claim stops no other document. */
export const ALONE_MOST_MS = 1_500
/** The most additional candidates that a look reads, to make up for those that can't be held now. */
const MOST_PASSED_OVER = 5_000
const MAKES_WAY_EVERY_MS = 1_000
const ANY_NUMBER = Number.POSITIVE_INFINITY
const ALONE = 0

/** A document that is held, or that a callback is called for. */
export interface HeldClaim {
  /** The number of its claims without a recorded outcome, including this one. */
  readonly claims: number
  readonly claimedAtMs: number
}

/** The number of claims without an outcome after which a document is given up, and the number of those that run at the same time. */
export type IsolationSettings = Pick<LifecycleSettings, 'progress' | 'concurrency' | 'maxClaims'>

/**
 * The isolation of suspects on one replica, the one policy for what may run beside what: documents and their steps, outboxes and their callbacks. What
 * was claimed before without a recorded outcome is a suspect: its handler may kill its process, and with it the claims of everything else that is
 * held.
 *
 * Invariants: the replica never holds more suspects at the same time than each of them allows: `concurrency` on its second claim, then a quarter
 * of that with each further one, at least one. On its last claim (`maxClaims`) a document begins alone: no other suspect of this replica is held or
 * being claimed, and nothing is claimed in its first 1.5 s. Steps that still run beside it are unsuspected, and were claimed more than a second
 * before. So only poison is parked. The cost to other documents is small: at least half of the time is theirs, and claims stop for 4 s at most.
 *
 * A call before its last try waits only for suspects that have begun in the last 1.5 s, and for documents on their last claim. Otherwise it would
 * wait for the longest step of any lifecycle.
 */
export class CrashIsolation {
  private readonly members: Member[] = []
  private readonly claims = new Set<IsolatedClaim>()
  /** True if a claim had to leave documents: all lifecycles are called when there may be room for them. */
  isWaitedFor = false
  private wantedSinceMs: number | undefined
  private wantedAtMs = Number.NEGATIVE_INFINITY
  private aloneSinceMs: number | undefined
  private othersUntilMs = Number.NEGATIVE_INFINITY
  private madeWayAtMs = Number.NEGATIVE_INFINITY

  constructor(private readonly clock: Clock) {}

  /** @param onRoom called when there may be room for documents that were not admitted */
  join(held: () => Iterable<HeldClaim>, settings: IsolationSettings, onRoom: () => void = () => undefined): void {
    this.members.push({ held, settings, onRoom })
  }

  /** Begins one claim of a lifecycle; `over` ends it. `passedBefore`: the number of documents that the claim before it had to leave. */
  forClaim(settings: IsolationSettings, passedBefore: number): IsolatedClaim {
    const isolated = new IsolatedClaim(this, settings, passedBefore)
    this.claims.add(isolated)
    return isolated
  }

  over(isolated: IsolatedClaim): void {
    this.claims.delete(isolated)
  }

  /** True if an unsuspected document may be claimed. */
  get isOpen(): boolean {
    return this.closedMs === 0 && !this.present().isQuiet
  }

  /**
   * The time since claims stopped and chains began to yield, because a document has waited too long to be held alone; 0: claims go on. While that
   * document waits for another suspect, claims stop and go on by turns.
   */
  get closedMs(): number {
    const now = this.clock.monotonicMs()
    if (now - this.wantedAtMs > PATIENCE_MS) return 0 // another replica has the document
    const wantedMs = now - (this.wantedSinceMs ?? now)
    return Math.max(0, (wantedMs % (PATIENCE_MS + CLOSED_MOST_MS)) - PATIENCE_MS)
  }

  /** The time after which documents that weren't admitted are worth another try although no other has been let go; 0: it isn't known. */
  get againInMs(): number {
    const quietUntilMs = (this.aloneSinceMs ?? Number.NEGATIVE_INFINITY) + ALONE_MOST_MS
    return Math.max(0, Math.max(quietUntilMs, this.othersUntilMs) - this.clock.monotonicMs())
  }

  /** Calls the lifecycles if there may be room for documents that had to be left. Call it when a document is no longer held. */
  released(): void {
    const { aloneSinceMs } = this
    if (!this.isWaitedFor && aloneSinceMs === undefined) return
    const { total, suspects, least } = this.present()
    if (aloneSinceMs !== undefined && least > ALONE) {
      // At least half of the time is for all others: many documents in a row that have to be alone starve no other.
      const now = this.clock.monotonicMs()
      this.othersUntilMs = now + Math.min(now - aloneSinceMs, ALONE_MOST_MS)
      this.aloneSinceMs = undefined
    }
    if (total > 0 && suspects > 0 && suspects * 2 > least) return
    this.isWaitedFor = false
    for (const { onRoom } of this.members) onRoom()
  }

  /** True if a document on its last claim may be claimed beside those that are held. */
  admitsAlone({ total, suspects, least }: Present): boolean {
    if (least === ALONE) return false
    const now = this.clock.monotonicMs()
    const isDrained = suspects === 0 && this.closedMs >= DRAIN_MS
    const isAdmitted = isDrained || (total === 0 && now >= this.othersUntilMs)
    if (!isAdmitted && (this.wantedSinceMs === undefined || now - this.wantedAtMs > PATIENCE_MS))
      this.wantedSinceMs = now
    this.wantedAtMs = now
    return isAdmitted
  }

  /** Records that a document on its last claim has got its place. */
  placedAlone(): void {
    this.wantedSinceMs = undefined
    this.aloneSinceMs = this.clock.monotonicMs()
  }

  /**
   * True if others are claimed immediately in place of a document that couldn't be held alone after all: once a second, so that this never goes in
   * circles.
   */
  makesWay(): boolean {
    const now = this.clock.monotonicMs()
    if (now - this.madeWayAtMs < MAKES_WAY_EVERY_MS) return false
    this.madeWayAtMs = now
    return true
  }

  /** Counts as `present` does, but no step that has run for longer than 1.5 s, unless it is on its last claim, which a crash must not use up. */
  recent(except: IsolatedClaim): Present {
    return this.present(except, true)
  }

  /** Counts all documents that are held or being claimed, except those of one claim. */
  present(except?: IsolatedClaim, isRecentOnly = false): Present {
    const present = nothingHeld()
    const quietSinceMs = this.clock.monotonicMs() - ALONE_MOST_MS
    for (const { held, settings } of this.members) {
      for (const { claims, claimedAtMs } of held()) {
        const most = mostBeside(settings, claims)
        const isNew = claimedAtMs > quietSinceMs
        if (isNew || most === ALONE || !isRecentOnly) count(present, most, isNew)
      }
    }
    for (const claim of this.claims) {
      if (claim === except) continue
      present.total += claim.own.total
      present.suspects += claim.own.suspects
      present.least = Math.min(present.least, claim.own.least)
      present.isQuiet ||= claim.own.isQuiet
    }
    return present
  }
}

interface Member {
  readonly held: () => Iterable<HeldClaim>
  readonly settings: IsolationSettings
  readonly onRoom: () => void
}

interface Present {
  total: number
  suspects: number
  least: number
  /** True if a document that has to be alone has just been claimed. */
  isQuiet: boolean
}

const nothingHeld = (): Present => ({ total: 0, suspects: 0, least: ANY_NUMBER, isQuiet: false })

/** The documents that one claim may take. Its look reads more candidates, to get beyond those that the claim before it had to leave. */
export class IsolatedClaim implements SelectionPolicy {
  readonly own = nothingHeld()
  /** The number of due documents that it had to leave for now; undefined: it hasn't chosen. */
  passedOver: number | undefined
  private before: Present | undefined
  private recent: Present | undefined

  constructor(
    private readonly isolation: CrashIsolation,
    private readonly settings: IsolationSettings,
    private readonly passedBefore: number,
  ) {}

  reach(): Reach {
    return { spare: Math.min(MOST_PASSED_OVER, 2 * this.passedBefore) }
  }

  choose(_memory: PhaseMemory, candidates: Candidates): Candidates {
    this.passedOver = 0
    return candidates
  }

  /** True if a candidate may be held together with all other documents. */
  admits(document: Document): boolean {
    const isAdmitted = this.allows(this.mostBeside(document))
    if (!isAdmitted) this.passedOver! += 1
    return isAdmitted
  }

  /** Counts a document as held until the claim is over. */
  placed(document: Document): void {
    this.place(this.mostBeside(document))
  }

  /**
   * Takes a place for a call that would be on its nth try, as `admits` and `placed` do for a candidate. Of the steps that have run for longer than
   * 1.5 s, only those on their last claim keep it waiting; on its last try, all suspects among them do.
   */
  takes(tries: number): boolean {
    const most = mostBeside(this.settings, tries)
    const isAdmitted = this.allows(most, most !== ALONE)
    if (isAdmitted) this.place(most)
    return isAdmitted
  }

  private place(most: number): void {
    if (most === ALONE) this.isolation.placedAlone()
    count(this.own, most, true)
  }

  private mostBeside(document: Document): number {
    return mostBeside(this.settings, 1 + (Number(document[this.settings.progress]?.claims) || 0))
  }

  private allows(most: number, isByRecent = false): boolean {
    const { own, isolation } = this
    if (isByRecent) this.recent ??= isolation.recent(this)
    else this.before ??= isolation.present(this)
    const before = isByRecent ? this.recent! : this.before!
    if (before.isQuiet || own.isQuiet) return false
    if (most === ALONE)
      return own.suspects === 0 && isolation.admitsAlone({ ...before, total: before.total + own.total })
    if (isolation.closedMs > 0) return false
    return most === ANY_NUMBER || before.suspects + own.suspects < Math.min(before.least, own.least, most)
  }
}

function count(present: Present, most: number, isNew: boolean): void {
  present.total += 1
  if (most === ANY_NUMBER) return
  present.suspects += 1
  present.least = Math.min(present.least, most)
  if (most === ALONE && isNew) present.isQuiet = true
}

/** The number of suspects that may be held at the same time while one of them is on its nth claim without a recorded outcome. */
export function mostBeside(
  { maxClaims, concurrency }: Pick<IsolationSettings, 'maxClaims' | 'concurrency'>,
  claims: number,
): number {
  // A document past its last claim is parked without calling its handler.
  if (!(claims >= 2) || claims > maxClaims) return ANY_NUMBER
  return claims === maxClaims ? ALONE : Math.max(1, Math.floor(concurrency / 4 ** (claims - 2)))
}
