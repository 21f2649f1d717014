import type { IndexSpecification } from 'mongodb'

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
