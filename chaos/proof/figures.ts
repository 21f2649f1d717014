import type { DocumentKey, Fault, FaultEntry, HeldDocument, LedgerEntry, StepEntry } from './ledger.ts'

/** The last end of each document that the ledger must show: `moveTo Started`. */
export type ExpectedEnds = ReadonlyMap<DocumentKey, string>

/** The figures of a run, computed from the ledger alone. Seconds are the server's; null if it never happened. */
export interface Figures {
  /** Documents whose last step never ended. */
  readonly lost: number
  /** Steps that began after a later step of their document had begun. */
  readonly repeated: number
  /** Entries with time left on the lease, stamped after a step with a higher fence on that document had begun. */
  readonly overlapping: number
  /** The time from the kill to the claim of the last of its documents. */
  readonly recoverySeconds: number | null
  /** The time from the SIGTERM to the next claim of a document that was not in a step. */
  readonly handoverSeconds: number | null
  /** The time from the SIGTERM to the claim of the last of them. */
  readonly handoverOfAllSeconds: number | null
  readonly stepsBegun: number
  readonly stepsLongerThanLockTimeout: number
  readonly leasesAtKill: number
  readonly notBegunAtTerminate: number
  readonly leasesAtPause: number
  /** The first few cases of the counts above, for people. */
  readonly examples: readonly string[]
}

const EXAMPLES = 3

export function figuresOf(entries: readonly LedgerEntry[], expected: ExpectedEnds, lockTimeoutMs: number): Figures {
  const steps = entries.filter((entry) => entry.kind !== 'fault')
  const none = [...expected.keys()].map((document) => [document, [] as StepEntry[]] as const)
  const byDocument = new Map<DocumentKey, StepEntry[]>([...none, ...Map.groupBy(steps, ({ document }) => document)])
  for (const steps of byDocument.values()) steps.sort((a, b) => a.at.getTime() - b.at.getTime())
  const all = [...byDocument]
  const lost = all.filter(([document, steps]) => isLost(steps, expected.get(document)))
  const repeated = all.flatMap(([, steps]) => repeatedSteps(steps))
  const overlapping = all.flatMap(([, steps]) => overlappingEntries(steps))
  const recovery = afterFault(entries, byDocument, 'kill')
  const handover = afterFault(entries, byDocument, 'terminate', isNotBegun(byDocument))
  return {
    lost: lost.length,
    repeated: repeated.length,
    overlapping: overlapping.length,
    recoverySeconds: seconds(Math.max(...recovery)),
    handoverSeconds: seconds(Math.min(...handover)),
    handoverOfAllSeconds: seconds(Math.max(...handover)),
    stepsBegun: entries.filter(({ kind }) => kind === 'begin').length,
    stepsLongerThanLockTimeout: all.flatMap(([, steps]) => longSteps(steps, lockTimeoutMs)).length,
    leasesAtKill: recovery.length,
    notBegunAtTerminate: handover.length,
    leasesAtPause: faultIn(entries, 'pause')?.held.length ?? 0,
    examples: [
      ...lost.slice(0, EXAMPLES).map(([document, steps]) => describeLost(document, steps, expected.get(document))),
      ...repeated.slice(0, EXAMPLES).map((entry) => `repeated: ${describe(entry)}`),
      ...overlapping.slice(0, EXAMPLES).map((entry) => `overlapping: ${describe(entry)}, ${entry.leaseLeftMs} ms left`),
    ],
  }
}

/** True if a document is lost. The step with the highest fence is the last one; its end must be in the ledger, and be the expected one. */
function isLost(steps: readonly StepEntry[], expected = 'moveTo'): boolean {
  const last = lastBegun(steps)
  const end = last && steps.find((entry) => entry.kind === 'end' && isSameStep(entry, last))
  return !end?.outcome?.startsWith(expected)
}

const lastBegun = (steps: readonly StepEntry[]) =>
  begins(steps).reduce<StepEntry | undefined>(
    (last, entry) => (last && last.fence > entry.fence ? last : entry),
    undefined,
  )

/** Steps that began too late in their order. They are sorted by the server's time; two in the same millisecond count as simultaneous. */
function repeatedSteps(steps: readonly StepEntry[]): StepEntry[] {
  const begun = begins(steps)
  return begun.filter((entry) => begun.some((other) => other.number > entry.number && other.at < entry.at))
}

function overlappingEntries(steps: readonly StepEntry[]): StepEntry[] {
  const begun = begins(steps)
  return steps.filter(
    (entry) => entry.leaseLeftMs > 0 && begun.some((other) => other.fence > entry.fence && other.at < entry.at),
  )
}

/** Steps that took longer than the lock timeout and still had their lease at the end. */
function longSteps(steps: readonly StepEntry[], lockTimeoutMs: number): StepEntry[] {
  return steps.filter((end) => {
    if (end.kind !== 'end' || end.leaseLeftMs === 0) return false
    const begin = begins(steps).find((entry) => isSameStep(entry, end))
    return begin !== undefined && end.at.getTime() - begin.at.getTime() > lockTimeoutMs
  })
}

/** The delay of the next step, in ms, for each document that was held at a fault; Infinity if there was none. */
function afterFault(
  entries: readonly LedgerEntry[],
  byDocument: ReadonlyMap<DocumentKey, StepEntry[]>,
  fault: Fault,
  counts: (held: HeldDocument) => boolean = () => true,
): number[] {
  const entry = faultIn(entries, fault)
  if (!entry) return []
  return entry.held.filter(counts).map(({ document, fence }) => {
    const next = begins(byDocument.get(document) ?? []).find((step) => step.fence > fence && step.at >= entry.at)
    return next ? next.at.getTime() - entry.at.getTime() : Number.POSITIVE_INFINITY
  })
}

/** True if the ledger has no begin of the step that a document was held for: it had been claimed, and not begun. */
const isNotBegun =
  (byDocument: ReadonlyMap<DocumentKey, StepEntry[]>) =>
  ({ document, fence }: HeldDocument) =>
    !begins(byDocument.get(document) ?? []).some((step) => step.fence === fence)

const faultIn = (entries: readonly LedgerEntry[], fault: Fault) =>
  entries.find((entry): entry is FaultEntry => entry.kind === 'fault' && entry.fault === fault)

const begins = (steps: readonly StepEntry[]) => steps.filter((entry) => entry.kind === 'begin')

const isSameStep = (a: StepEntry, b: StepEntry) => a.fence === b.fence && a.replica === b.replica

/** Converts to seconds; null for never. Without any documents the smallest is Infinity and the largest -Infinity. */
const seconds = (ms: number) => (Number.isFinite(ms) ? Math.round(ms) / 1_000 : null)

const describe = (entry: StepEntry) =>
  `${entry.kind} of ${entry.step} of ${entry.document} on ${entry.replica} at ${entry.at.toISOString()}, fence ${entry.fence}`

function describeLost(document: DocumentKey, steps: readonly StepEntry[], expected = 'moveTo'): string {
  const last = lastBegun(steps)
  return `lost: ${document}: expected '${expected}' at the end, ${last ? `the last that began: ${describe(last)}` : 'no step ever began'}`
}
