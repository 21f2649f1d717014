import type { Document } from 'mongodb'
import type { Clock } from '../../../time/index.js'
import type { LifecycleSettings } from '../../definition/settings.js'
import type { HeldDocuments } from '../lease/held-documents.js'

/** A document that has waited this long to be held alone gets its turn: nothing more is claimed until what is held has ended. */
const PATIENCE_MS = 5_000
const ANY_NUMBER = Number.POSITIVE_INFINITY
const ALONE = 0

/**
 * Which documents a replica may hold together. A document that was claimed before without a recorded outcome is a suspect: its handler may
 * kill its process, and with it the claims of everything else that is held.
 *
 * Invariants: no more suspects are held at once than each of them allows: `concurrency` on its second claim, then a quarter of that with
 * each further one, at least one. On its last claim (`maxClaims`) a document is held alone: nothing else of this replica is held or being
 * claimed. So only real poison is parked: on a document's last claim only its own handler ran.
 */
export class Company {
  private readonly members: { readonly held: HeldDocuments; readonly settings: LifecycleSettings }[] = []
  private readonly claims = new Set<Admission>()
  private readonly waiting = new Map<string, () => void>()
  private wantedSinceMs: number | undefined
  private wantedAtMs = Number.NEGATIVE_INFINITY

  constructor(private readonly clock: Clock) {}

  join(held: HeldDocuments, settings: LifecycleSettings): void {
    this.members.push({ held, settings })
  }

  /** For one claim of a lifecycle, to be ended with `over`. */
  admission(settings: LifecycleSettings): Admission {
    const admission = new Admission(this, settings)
    this.claims.add(admission)
    return admission
  }

  over(admission: Admission): void {
    this.claims.delete(admission)
  }

  /** Whether a document that nobody suspects may be claimed. */
  get isOpen(): boolean {
    return !this.isClosing && this.present().least > ALONE
  }

  /** Nothing more is claimed, and chains yield: a document has waited too long to be held alone. */
  get isClosing(): boolean {
    const now = this.clock.monotonicMs()
    if (this.wantedSinceMs === undefined) return false
    if (now - this.wantedAtMs > PATIENCE_MS) this.wantedSinceMs = undefined // another replica has it
    return this.wantedSinceMs !== undefined && now - this.wantedSinceMs > PATIENCE_MS
  }

  /** Calls `then` once when there may be room for documents of a phase that were not admitted. */
  whenThereIsRoom(lifecycle: string, phase: string, then: () => void): void {
    this.waiting.set(`${lifecycle} ${phase}`, then)
  }

  /** To be called when something is no longer held. */
  left(): void {
    if (this.waiting.size === 0) return
    const { total, suspects, least } = this.present()
    if (total > 0 && suspects > 0 && suspects * 2 > least) return
    const waiting = [...this.waiting.values()]
    this.waiting.clear()
    for (const then of waiting) then()
  }

  /** A document that has to be held alone is, or waits for that. */
  alone(isAlone: boolean): void {
    this.wantedAtMs = this.clock.monotonicMs()
    this.wantedSinceMs = isAlone ? undefined : (this.wantedSinceMs ?? this.wantedAtMs)
  }

  /** All that is held or being claimed. */
  present(except?: Admission): Present {
    const present = { total: 0, suspects: 0, least: ANY_NUMBER }
    for (const { held, settings } of this.members) {
      for (const { document } of held.all()) {
        count(present, mostBeside(settings, Number(document[settings.progress]?.claims ?? 1)))
      }
    }
    for (const claim of this.claims) {
      if (claim === except) continue
      present.total += claim.own.total
      present.suspects += claim.own.suspects
      present.least = Math.min(present.least, claim.own.least)
    }
    return present
  }
}

interface Present {
  total: number
  suspects: number
  least: number
}

/** What one claim may take. */
export class Admission {
  readonly own: Present = { total: 0, suspects: 0, least: ANY_NUMBER }
  /** How many due documents it had to leave for now. */
  passedOver = 0
  private before: Present | undefined

  constructor(
    private readonly company: Company,
    private readonly settings: LifecycleSettings,
  ) {}

  /** Whether a candidate may be held together with all else; if so it counts as held until the claim is over. */
  admits(document: Document): boolean {
    this.before ??= this.company.present(this)
    const most = mostBeside(this.settings, 1 + (Number(document[this.settings.progress]?.claims) || 0))
    const allowed = this.allows(most)
    if (allowed) count(this.own, most)
    else this.passedOver += 1
    return allowed
  }

  private allows(most: number): boolean {
    const { before, own, company } = this
    const least = Math.min(before!.least, own.least)
    if (least === ALONE) return false
    if (most === ALONE) {
      const isAlone = before!.total + own.total === 0
      company.alone(isAlone)
      return isAlone
    }
    if (company.isClosing) return false
    return most === ANY_NUMBER || before!.suspects + own.suspects < Math.min(least, most)
  }
}

function count(present: Present, most: number): void {
  present.total += 1
  if (most === ANY_NUMBER) return
  present.suspects += 1
  present.least = Math.min(present.least, most)
}

/** How many suspects may be held at once while one of them is on its nth claim without a recorded outcome. */
function mostBeside({ maxClaims, concurrency }: LifecycleSettings, claims: number): number {
  // One past its last claim is parked without calling its handler.
  if (!(claims >= 2) || claims > maxClaims) return ANY_NUMBER
  return claims === maxClaims ? ALONE : Math.max(1, Math.floor(concurrency / 4 ** (claims - 2)))
}
