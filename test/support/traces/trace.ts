import type { Document } from 'mongodb'
import type { EndKind, Verdict } from '../../../src/lock/index.js'

/*
 * What happened in a test, as three witnesses tell it: the replicas (what they believed and said), the server (what it answered,
 * also where nobody got the answer), and the documents at the end (their histories). Times of replicas are monotonic milliseconds
 * of this process, times of the server are dates.
 */
export interface Trace {
  readonly leases: Belief[]
  readonly runs: Run[]
  readonly verdicts: Told[]
  /** Ends that were to be written and have no verdict. */
  readonly unanswered: Omit<Told, 'verdict'>[]
  readonly writes: Applied[]
  readonly samples: Sample[]
}

/** A lease as its holder believes in it. */
export interface Belief {
  readonly id: string
  /** `replica#claim`. */
  readonly claim: string
  /** When its claim was sent. */
  readonly sinceMs: number
  /** When the holder stopped believing in it: by its age, or because it was told. */
  readonly untilMs: number
}

/** One run of a handler. */
export interface Run {
  readonly id: string
  readonly claim: string
  readonly token: string
  readonly fromMs: number
  /** Infinity: it runs still. */
  readonly toMs: number
}

/** What a replica was told has become of a write under a token. */
export interface Told {
  readonly id: string
  readonly claim: string
  readonly token: string
  readonly end: EndKind['kind']
  readonly verdict: Verdict['kind']
}

/** A write that goes by a lockTimeout and changed something. */
export interface Applied {
  /** The server said so; else its connection ended before it could. */
  readonly isCertain: boolean
  readonly what: 'claim' | 'renewal' | 'rule' | 'removal'
  readonly sentAt: Date
  /** Until when its terms may be gone by, as it says itself. */
  readonly validUntil: Date | undefined
  /** The token that it gives: of a claim. */
  readonly token: string | undefined
}

/** What was due at a moment, and whether anybody could have taken it. */
export interface Sample {
  readonly at: Date
  /** With the fence that each had: a claim raises it. */
  readonly due: readonly { readonly id: string; readonly fence: number }[]
  /** Whether a live replica that handles its phase had room and its database. */
  readonly hasRoom: boolean
}

/** The documents at the end, by their `_id` as text. */
export type Documents = ReadonlyMap<string, Document>
