import type { Document, IndexSpecification } from 'mongodb'

/** Holds a document for each lifecycle: its `_id`, collection, the lockTimeout in force (ms) and its pauses. */
export const LIFECYCLES_COLLECTION = 'phaselock.lifecycles'

/** `lockedAt` of a free document, and its initial value: 1970-01-01T00:00:00Z. */
export const TASK_LOCK_INIT_TIME = new Date(0)

/** `lockedAt` of a parked document: it waits for a person, or for a state from its owner. */
export const PARKED_AT = new Date('9999-12-31T00:00:00Z')

/** Serves every claim: equality on `phase`, a range on `lockedAt`, the longest untouched first. */
export const CLAIM_INDEX = { phase: 1, lockedAt: 1, updatedAt: 1 } as const satisfies IndexSpecification

/** Serves every look for state rules. */
export const STATE_INDEX = { state: 1, phase: 1 } as const satisfies IndexSpecification

/** Writes by `_id` name this index: without it the planner may walk the claim index (60,000 keys for 500 documents, measured). */
export const ID_INDEX = { _id: 1 } as const

/** The number of entries that `progress.history` keeps, the newest ones. */
export const HISTORY_LIMIT = 20

/** The shortest pause before the next claim: without it one waiting document is claimed 33 times in its first second (measured). */
export const LEAST_PAUSE_MS = 100

/** Holds a document for each limit: its number of slots, the rate at which they may be taken, and their holders (ask.ts). */
export const LIMITS_COLLECTION = 'phaselock.limits'

/** Holds a document for each duty: a task that one replica does now and then for all of them. */
export const DUTIES_COLLECTION = 'phaselock.duties'

/** Holds a document for each lifecycle: its documents by phase and condition, as the last census found them. */
export const CENSUS_COLLECTION = 'phaselock.census'

/**
 * The terms that all commands of a lifecycle's lock protocol are built from. `lockTimeoutMs` is part of the data: leases and sleeps are encoded
 * with it, so it is the value in force in `phaselock.lifecycles`, not a replica's own setting.
 */
export interface Terms {
  readonly lockTimeoutMs: number
  /** The time that a lease lasts for its holder; less than `lockTimeoutMs` while that is being changed. */
  readonly leaseMs: number
  /** Server time after which a write no longer applies `lockTimeoutMs` or `leaseMs`. Undefined: always valid. */
  readonly validUntil?: Date | undefined
  /** Set while a forward step of the server's clock isn't confirmed: holds back documents that it has made due. */
  readonly hold?: TermsHold | undefined
  /** True if writers that don't know `lockedBy` also lease documents of this lifecycle. */
  readonly legacyWriters: boolean
  /** The name of the field that holds all of Phaselock's data besides the seven top-level fields. */
  readonly progress: string
  readonly backOff: BackOffRule
  /** The least pause of a wait whose handler names none. */
  readonly leastWaitMs: number
  /** In these phases only documents that match are looked for and claimed; the others are left to replicas that can work on them. */
  readonly only?: Only | undefined
  /** The callbacks that are notified of changes of documents. Absent: none, and nothing is stored for them. */
  readonly callbacks?: readonly CallbackName[] | undefined
  /** The phases with work to do, of those that a document may be in. Undefined: all. */
  readonly working?: readonly string[] | undefined
}

/** The name of a callback: a document has moved, was parked, its phase's deadline has passed, or it was removed. */
export type CallbackName = 'onMoved' | 'onParked' | 'onTimeout' | 'onRemoved'

/** The sleeps of documents between looks, and after errors. */
export interface BackOffRule {
  /** A waiting document sleeps for this share of the time it has waited so far. */
  readonly share: number
  /** Once it has waited for longer than this, it sleeps for a whole lockTimeout each time. */
  readonly patienceMs: number
  /** The pause after the first error in a row; doubled with each further one. */
  readonly firstErrorMs: number
  /** The longest pause after an error. */
  readonly longestErrorMs: number
  /** After this number of steps in a row without a new phase, a wait or an error, there is a pause after each. */
  readonly afterSteps: number
}

/** A tenth of the time waited, up to two minutes; errors: 1 s, 2 s, 4 s, ... 5 min. */
export const DEFAULT_BACK_OFF: BackOffRule = {
  share: 0.1,
  patienceMs: 120_000,
  firstErrorMs: 1_000,
  longestErrorMs: 300_000,
  afterSteps: 1_000,
}

/**
 * A forward step of the server's clock that isn't confirmed yet: documents that only it has made due aren't due (see `isDue`), no deadline passes,
 * nothing is removed.
 */
export interface ClockHold {
  /** The least amount that the clock stepped. */
  readonly ms: number
  /** Server time: every lease from before the step is older, every later one is not. */
  readonly since: Date
}

export interface TermsHold extends ClockHold {
  /** The phases whose sleeps are only pauses, which may end after the step. In others a sleep stands for a deadline or a removal. */
  readonly working: readonly string[]
}

/** The documents in some phases that a replica can work on. */
export interface Only {
  readonly phases: readonly string[]
  readonly where: Document
  /** The names of the things that this process can work on, for its document in `phaselock.replicas`. */
  readonly knows?: readonly string[] | undefined
}

export const termsOf = (lockTimeoutMs: number, more: Partial<Omit<Terms, 'lockTimeoutMs'>> = {}): Terms => ({
  lockTimeoutMs,
  leaseMs: lockTimeoutMs,
  legacyWriters: false,
  progress: 'progress',
  backOff: DEFAULT_BACK_OFF,
  leastWaitMs: 1_000,
  ...more,
})

/** An owner's value is never read as an expression: `{ a: '$name' }` would store the value of `name`. */
export const literal = (value: unknown): Document => ({ $literal: value })

export const isDate = (path: string): Document => ({ $eq: [{ $type: path }, 'date'] })

/** A stored array, and an empty one in place of anything else. */
export const arrayAt = (path: string): Document => ({ $cond: [{ $isArray: path }, path, []] })

/**
 * True if time can have passed since a date: it isn't in the future, nor so far from now that the server's date arithmetic overflows (error 15)
 * or JavaScript reads an Invalid Date.
 */
export const isPastDate = (path: string): Document => ({
  $and: [isDate(path), { $gte: [path, TASK_LOCK_INIT_TIME] }, { $lte: [path, '$$NOW'] }],
})

/** The number at `path` if it is a sane count, else 0: a string, an array or NaN is mended, not kept. */
export const countAt = (path: string): Document => ({
  $cond: [{ $and: [{ $isNumber: path }, { $gte: [path, 0] }, { $lt: [path, 1e9] }] }, { $toInt: path }, 0],
})

/** The path of a field in the lifecycle's progress, as an expression: `$progress.since`. */
export const inProgress = (terms: Pick<Terms, 'progress'>, field: string): string => `$${terms.progress}.${field}`

/** True if these terms are still valid when the command is executed; undefined: always. */
export const isValidYet = ({ validUntil }: Terms): Document | undefined => validUntil && { $lte: ['$$NOW', validUntil] }

/** True if `progress` and `phase` have our shape. Anything else is the owner's and is never overwritten. */
export const hasOurShape = (terms: Terms): Document => ({
  $and: [
    { $in: [{ $type: `$${terms.progress}` }, ['object', 'missing', 'null']] },
    { $eq: [{ $type: '$phase' }, 'string'] },
  ],
})

/** The change of `progress` in an update, if it is ours. */
export const progressIfOurs = (terms: Terms, changed: Document): Document => ({
  [terms.progress]: { $cond: [hasOurShape(terms), changed, `$${terms.progress}`] },
})

/** The time when the document entered its phase; now if no replica has recorded that. */
export function enteredAt(terms: Terms): Document {
  const since = inProgress(terms, 'since')
  return { $cond: [isPastDate(since), since, '$$NOW'] }
}

/** `progress.claims` without the latest claim: it says nothing about the document. */
export const withoutClaim = (terms: Terms): Document => ({
  $max: [0, { $subtract: [countAt(inProgress(terms, 'claims')), 1] }],
})

/** The part of `progress` that outlives a change of phase: everything that doesn't belong to the phase being left. */
export const progressAcrossPhases = (terms: Terms): Document =>
  without({ $ifNull: [`$${terms.progress}`, {}] }, PHASE_FIELDS)

/** An object without some of its fields, as an expression. */
export function without(object: unknown, names: readonly string[]): Document {
  const staysOn = { $not: { $in: ['$$field.k', [...names]] } }
  return { $arrayToObject: { $filter: { input: { $objectToArray: object }, as: 'field', cond: staysOn } } }
}

/** Fields of `progress` that name a step, or say why a document waits, asks or failed; removed as soon as it moves on. */
export const PHASE_FIELDS = [
  'step',
  'steps',
  'waitingFor',
  'waitingOn',
  'waitingSince',
  'resumeAt',
  'error',
  'question',
  'answer',
  'awaits',
]

/**
 * One value for each document of a grouped write. The list of ids must be the filter's own: an id that isn't in it would get the most common
 * value.
 *
 * The server walks the list for each document, so those with the most common value aren't in it: a list of 480 costs it 7 us a document, one of
 * 24 half a microsecond. `$indexOfArray` works with any `_id` on any server >= 5.0, and returns -1 for one that isn't listed, which
 * `$arrayElemAt` takes as the last.
 */
export function perDocument(ids: readonly unknown[], values: readonly unknown[]): Document {
  const usual = mostCommon(values)
  const others = [...ids.keys()].filter((i) => values[i] !== usual)
  if (others.length === 0) return literal(usual ?? null)
  const listed = [...others.map((i) => values[i]), usual]
  return { $arrayElemAt: [literal(listed), { $indexOfArray: [literal(others.map((i) => ids[i])), '$_id'] }] }
}

function mostCommon(values: readonly unknown[]): unknown {
  const counts = new Map<unknown, number>()
  let [usual, most] = [values[0], 0]
  for (const value of values) {
    const count = (counts.get(value) ?? 0) + 1
    counts.set(value, count)
    if (count > most) [usual, most] = [value, count]
  }
  return usual
}
