import { traceOf } from '../../../src/lock/end/read-back.js'
import { ClaimTokens, type Terms, termsOf } from '../../../src/lock/index.js'
import type { Write } from '../captured.js'
import { COMMANDS, recoveryOf } from '../commands.js'
import { at, TICK_MS } from './database.js'
import type { EndName } from './state.js'

/** Ticks. */
export const LOCK_TIMEOUT = 2
export const PHASE = 'Working'
export const RULE = { when: 'Deleted', from: [PHASE, 'Created'], moveTo: 'Deleting' }

/** What of the protocol can be taken away: first what the product builds, then what its engine sees to. */
export interface Protections {
  readonly commands: typeof COMMANDS
  /** Of the leases of replica a, by a command that has read the server's time at this tick. */
  readonly recovery: (terms: Terms, readAt: number) => Write
  readonly traceOf: typeof traceOf
  /** The token of a claim's step. */
  readonly tokenOf: (replica: string, claim: number, step: number) => string
  /** How many ticks the clock is ahead by which a replica's commands go. */
  readonly aheadOf: (replica: string) => number
  /** One document's writes go in one order, one at a time. */
  readonly oneAtATime: boolean
  /** A write that matched nothing is read back before its step goes on. */
  readonly readsBack: boolean
  readonly againRestartsAge: boolean
  readonly ageCountsFromAnswer: boolean
  readonly unlocksUnderHandler: boolean
}

function tokenOf(replica: string, claim: number, step: number): string {
  const tokens = new ClaimTokens(replica, claim)
  return Array.from({ length: step - 1 }, () => tokens.nextToken()).at(-1) ?? tokens.token
}

const recoveries = new Map<string, Write>()
for (const legacy of [false, true]) {
  for (let readAt = -LOCK_TIMEOUT - 1; readAt <= 0; readAt += 1) {
    const terms = termsOf(LOCK_TIMEOUT * TICK_MS, { legacyWriters: legacy })
    recoveries.set(`${legacy} ${readAt}`, await recoveryOf(terms, [PHASE, 'Deleting'], 'a', at(readAt)))
  }
}

export const PROTECTED: Protections = {
  commands: COMMANDS,
  recovery: ({ legacyWriters }, readAt) => recoveries.get(`${legacyWriters} ${readAt}`)!,
  traceOf,
  tokenOf,
  aheadOf: () => 0,
  oneAtATime: true,
  readsBack: true,
  againRestartsAge: false,
  ageCountsFromAnswer: false,
  unlocksUnderHandler: false,
}

/** What happens in a model, and how often. */
export interface Bounds {
  /** Default: time goes on for ever; needs a bound where it is stored as a number, in fences. */
  readonly ticks?: number
  readonly claims: number
  /** Claims and steps together. Default: two steps more than claims. */
  readonly epochs?: number
  /** Answers that are lost, and commands that wait in the server or come late. */
  readonly faults?: number
  readonly ends: readonly EndName[]
  readonly renewals?: 'answered' | 'waiting'
  readonly checkpoints?: boolean
  /** What its owner does: wishes for another state, replaces or deletes the document. */
  readonly wishes?: boolean
  readonly edits?: number
  readonly legacy?: boolean
  readonly crashes?: boolean
  readonly effects?: boolean
}

/** Those that all replicas go by. */
export const termsIn = ({ legacy = false }: Bounds): Terms => termsOf(LOCK_TIMEOUT * TICK_MS, { legacyWriters: legacy })
