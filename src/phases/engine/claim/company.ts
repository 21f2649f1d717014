import type { Document } from 'mongodb'
import type { Candidates, Reach, SelectionPolicy } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import type { LifecycleSettings } from '../../model/settings.js'
import type { HeldDocuments } from '../lease/held-documents.js'

/** A document that has waited this long to be held alone gets its turn: nothing more is claimed, and chains yield. */
const PATIENCE_MS = 5_000
/** Then what is held has this long to end. What nobody suspects and still runs after it isn't waited for. */
const DRAIN_MS = 1_000
/** For this long at most nothing is claimed: a look a second falls into it. Another suspect that runs on is waited for with the door open. */
const CLOSED_MOST_MS = 2_500
/** So long a document is alone: then others may come, so that a long step on its last claim stops nobody. */
const ALONE_MOST_MS = 1_500
/** A look reads at most this many more to make up for those that aren't to be held now. */
const MOST_PASSED_OVER = 5_000
const MAKES_WAY_EVERY_MS = 1_000
const ANY_NUMBER = Number.POSITIVE_INFINITY
const ALONE = 0

/**
 * Which documents a replica may hold together. A document that was claimed before without a recorded outcome is a suspect: its handler may
 * kill its process, and with it the claims of everything else that is held.
 *
 * Invariants: no more suspects are held at once than each of them allows: `concurrency` on its second claim, then a quarter of that with
 * each further one, at least one. On its last claim (`maxClaims`) a document begins alone: no other suspect of this replica is held or being
 * claimed, nothing is claimed in its first 1.5 s, and what runs beside it is unsuspected and has run for more than 6 s. So only poison is
 * parked. And it costs the others little: of the time, a half at least is theirs, and nothing else is claimed for 4 s at most.
 */
export class Company {
  private readonly members: Member[] = []
  private readonly claims = new Set<Admission>()
  /** True if a claim had to leave documents: its lifecycle is called when there may be room for them. */
  isWaitedFor = false
  private wantedSinceMs: number | undefined
  private wantedAtMs = Number.NEGATIVE_INFINITY
  private aloneSinceMs: number | undefined
  private othersUntilMs = Number.NEGATIVE_INFINITY
  private madeWayAtMs = Number.NEGATIVE_INFINITY

  constructor(private readonly clock: Clock) {}

  /** @param onRoom called when there may be room for documents that were not admitted */
  join(held: HeldDocuments, settings: LifecycleSettings, onRoom: () => void = () => undefined): void {
    this.members.push({ held, settings, onRoom })
  }

  /** For one claim of a lifecycle, to be ended with `over`; `passedBefore`: how many the claim before it had to leave. */
  admission(settings: LifecycleSettings, passedBefore: number): Admission {
    const admission = new Admission(this, settings, passedBefore)
    this.claims.add(admission)
    return admission
  }

  over(admission: Admission): void {
    this.claims.delete(admission)
  }

  /** Whether a document that nobody suspects may be claimed. */
  get isOpen(): boolean {
    return this.closedMs === 0 && !this.present().isQuiet
  }

  /**
   * For how long nothing more has been claimed, and chains yield, as a document has waited too long to be held alone; 0: that isn't so. By turns
   * it isn't, while what it waits for is a suspect too.
   */
  get closedMs(): number {
    const now = this.clock.monotonicMs()
    if (now - this.wantedAtMs > PATIENCE_MS) return 0 // another replica has it
    const wantedMs = now - (this.wantedSinceMs ?? now)
    return Math.max(0, (wantedMs % (PATIENCE_MS + CLOSED_MOST_MS)) - PATIENCE_MS)
  }

  /** After how long what wasn't admitted is worth another try although nothing has been let go; 0: it isn't known. */
  get againInMs(): number {
    const quietUntilMs = (this.aloneSinceMs ?? Number.NEGATIVE_INFINITY) + ALONE_MOST_MS
    return Math.max(0, Math.max(quietUntilMs, this.othersUntilMs) - this.clock.monotonicMs())
  }

  /** To be called when something is no longer held. */
  left(): void {
    const { aloneSinceMs } = this
    if (!this.isWaitedFor && aloneSinceMs === undefined) return
    const { total, suspects, least } = this.present()
    if (aloneSinceMs !== undefined && least > ALONE) {
      // Of the time, one half at least is for all others: many in a row that have to be alone starve nobody.
      const now = this.clock.monotonicMs()
      this.othersUntilMs = now + Math.min(now - aloneSinceMs, ALONE_MOST_MS)
      this.aloneSinceMs = undefined
    }
    if (total > 0 && suspects > 0 && suspects * 2 > least) return
    this.isWaitedFor = false
    for (const { onRoom } of this.members) onRoom()
  }

  /** Whether a document on its last claim may be claimed, beside what is held. */
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

  /** A document on its last claim has got its place. */
  placedAlone(): void {
    this.wantedSinceMs = undefined
    this.aloneSinceMs = this.clock.monotonicMs()
  }

  /** Whether others are claimed at once in place of one that couldn't be held alone after all: once a second, so that this never goes in circles. */
  makesWay(): boolean {
    const now = this.clock.monotonicMs()
    if (now - this.madeWayAtMs < MAKES_WAY_EVERY_MS) return false
    this.madeWayAtMs = now
    return true
  }

  /** All that is held or being claimed. */
  present(except?: Admission): Present {
    const present = nobody()
    const quietSinceMs = this.clock.monotonicMs() - ALONE_MOST_MS
    for (const { held, settings } of this.members) {
      for (const { document, claimedAtMs } of held.all()) {
        const claims = Number(document[settings.progress]?.claims ?? 1)
        count(present, mostBeside(settings, claims), claimedAtMs > quietSinceMs)
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
  readonly held: HeldDocuments
  readonly settings: LifecycleSettings
  readonly onRoom: () => void
}

interface Present {
  total: number
  suspects: number
  least: number
  /** A document that has to be alone has just been claimed. */
  isQuiet: boolean
}

const nobody = (): Present => ({ total: 0, suspects: 0, least: ANY_NUMBER, isQuiet: false })

/** What one claim may take; the look reads beyond what the claim before it had to leave. */
export class Admission implements SelectionPolicy {
  readonly own = nobody()
  /** How many due documents it had to leave for now; undefined: it hasn't chosen. */
  passedOver: number | undefined
  private before: Present | undefined

  constructor(
    private readonly company: Company,
    private readonly settings: LifecycleSettings,
    private readonly passedBefore: number,
  ) {}

  reach(): Reach {
    return { spare: Math.min(MOST_PASSED_OVER, 2 * this.passedBefore) }
  }

  choose(_phase: string, candidates: Candidates): Candidates {
    this.passedOver = 0
    return candidates
  }

  /** Whether a candidate may be held together with all else. */
  admits(document: Document): boolean {
    const isAdmitted = this.allows(this.mostBeside(document))
    if (!isAdmitted) this.passedOver! += 1
    return isAdmitted
  }

  /** It counts as held until the claim is over. */
  placed(document: Document): void {
    const most = this.mostBeside(document)
    if (most === ALONE) this.company.placedAlone()
    count(this.own, most, true)
  }

  private mostBeside(document: Document): number {
    return mostBeside(this.settings, 1 + (Number(document[this.settings.progress]?.claims) || 0))
  }

  private allows(most: number): boolean {
    const { own, company } = this
    this.before ??= company.present(this)
    const { before } = this
    if (before.isQuiet || own.isQuiet) return false
    if (most === ALONE) return own.suspects === 0 && company.admitsAlone({ ...before, total: before.total + own.total })
    if (company.closedMs > 0) return false
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

/** How many suspects may be held at once while one of them is on its nth claim without a recorded outcome. */
function mostBeside({ maxClaims, concurrency }: LifecycleSettings, claims: number): number {
  // One past its last claim is parked without calling its handler.
  if (!(claims >= 2) || claims > maxClaims) return ANY_NUMBER
  return claims === maxClaims ? ALONE : Math.max(1, Math.floor(concurrency / 4 ** (claims - 2)))
}
