/** A document of any lifecycle, as the ledger names it: `api-gateway/6920...`. */
export type DocumentKey = string

export const documentKey = (lifecycle: string, id: unknown): DocumentKey => `${lifecycle}/${String(id)}`

/** A step's begin or end, written by the handler's wrapper. */
export interface StepEntry {
  readonly _id: string
  /** `late`: the lease was over before the handler could run, so the step never began. */
  readonly kind: 'begin' | 'end' | 'late'
  readonly document: DocumentKey
  /** The step's place in its document's order: it grows along the lifecycle, and is the same for a step that is repeated. */
  readonly number: number
  /** For people: `Deleting/functions`. */
  readonly step: string
  readonly fence: number
  /** By the replica's monotonic clock: 0 when the lease was over by the time the server's answer had come. */
  readonly leaseLeftMs: number
  /** The server's time. */
  readonly at: Date
  readonly replica: string
  /** For an end: `again`, `wait`, `park`, `threw`, `moveTo Created`. */
  readonly outcome?: string
}

export type Fault = 'kill' | 'terminate' | 'pause' | 'continue'

/** A fault inflicted on a replica, written by the demo just before it or, for a pause, just after. */
export interface FaultEntry {
  readonly _id: string
  readonly kind: 'fault'
  readonly fault: Fault
  readonly replica: string
  readonly at: Date
  /** What the replica held then. */
  readonly held: readonly HeldDocument[]
}

export interface HeldDocument {
  readonly document: DocumentKey
  readonly fence: number
}

export type LedgerEntry = StepEntry | FaultEntry
