import { HISTORY_LIMIT, type HistoryEntry, KNOWN_FOR_MS, type RecordedOutcome } from '../../../src/lock/index.js'
import type { Documents, Told, Trace } from './trace.js'

/** How an end stands in the history of its document; null: it leaves nothing there. */
export const OUTCOMES: Record<Told['end'], readonly RecordedOutcome[] | null> = {
  again: ['again'],
  wait: ['wait'],
  ask: ['ask'],
  unavailable: ['unavailable'],
  moveTo: ['moveTo', 'deadline'],
  park: ['park'],
  error: ['error'],
  released: ['released'],
  checkpoint: ['checkpoint'],
  sleepUntilDeadline: ['wait'],
  quarantine: null,
}

/** What anybody else does to a document that has a holder whose lease has passed. */
const OTHERS: ReadonlySet<RecordedOutcome> = new Set(['rule', 'owner'])

/** The bound of point 2 of docs/lock-protocol.md: somebody with room begins with what is due. */
const TURN_WITHIN_MS = 5_000
/** A sample takes its time, and a claim its round trips, on a machine that is busy with other things. */
const SAMPLE_SLACK_MS = 2_000

/** More say nothing new. */
const MOST_TOLD = 20

/** What doesn't fit together, in words; nothing: all that was said is true. */
export function contradictions(trace: Trace, documents: Documents): string[] {
  const all = [
    ...verdicts(trace, documents),
    ...runs(trace),
    ...ages(trace),
    ...(trace.writes.length > 0 ? grants(trace) : []),
    ...turns(trace),
  ]
  return all.length > MOST_TOLD ? [...all.slice(0, MOST_TOLD), `and ${all.length - MOST_TOLD} more`] : all
}

const historyOf = (documents: Documents, id: string): readonly HistoryEntry[] =>
  documents.get(id)?.['progress']?.history ?? []

/** Each 'recorded' has its write and only it, each 'lost' another's. */
function* verdicts({ verdicts, leases }: Trace, documents: Documents): Generator<string> {
  for (const { id, claim, token, end, verdict } of verdicts) {
    if (!documents.has(id)) continue
    const history = historyOf(documents, id)
    const outcomes = OUTCOMES[end]
    const own = history.filter(({ by, outcome }) => by === token && outcomes?.includes(outcome))
    const under = history.filter(({ by }) => by === token)
    // Alike waits are one entry, under the newest token; what is old is cut off.
    const mayBeGone = history.length >= HISTORY_LIMIT || history.some(({ count }) => count > 1)
    const told = `${end} of ${id} under ${token}`
    if (verdict === 'recorded' && outcomes && own.length === 0 && !mayBeGone) {
      yield `${told}: told as recorded, but its history has ${under.map(({ outcome }) => outcome).join() || 'nothing'} by it`
    }
    if (under.length > 1) yield `${told}: ${under.length} outcomes under one token`
    if (verdict !== 'lost') continue
    if (own.length > 0) yield `${told}: told as lost, but it was recorded`
    const wasTaken = leases.some((lease) => lease.id === id && lease.claim !== claim)
    if (!wasTaken && !history.some(({ outcome }) => OTHERS.has(outcome))) {
      yield `${told}: told as lost, but nobody has taken the document`
    }
  }
}

/** Each handler began within a lease of its own, and no other one ran within its lease at the same time. */
function* runs({ runs, leases }: Trace): Generator<string> {
  const byDocument = new Map<string, { token: string; claim: string; fromMs: number; untilMs: number }[]>()
  for (const run of runs) {
    const lease = leases.find(({ id, claim }) => id === run.id && claim === run.claim)
    if (!lease || lease.sinceMs > run.fromMs || lease.untilMs <= run.fromMs) {
      yield `${run.id}: a handler began under ${run.token} without a lease`
      continue
    }
    const before = byDocument.get(run.id) ?? []
    const during = { ...run, untilMs: Math.min(run.toMs, lease.untilMs) }
    for (const other of before) {
      if (other.claim !== run.claim && other.fromMs < during.untilMs && during.fromMs < other.untilMs) {
        yield `${run.id}: handlers ran under ${other.token} and ${run.token} within both their leases`
      }
    }
    byDocument.set(run.id, [...before, during])
  }
}

/** Rule 1 of point 10: what was read is gone by for 5 s. */
function* ages({ writes }: Trace): Generator<string> {
  for (const { what, sentAt, validUntil, token } of writes.filter(({ isCertain }) => isCertain)) {
    const name = `${what}${token ? ` under ${token}` : ''}`
    if (!validUntil) yield `${name}: was applied, and says nothing of the age of its terms`
    else if (sentAt > validUntil) {
      const ageMs = KNOWN_FOR_MS + sentAt.getTime() - validUntil.getTime()
      yield `${name}: was applied by terms that had been read ${ageMs} ms before`
    } else if (validUntil.getTime() - sentAt.getTime() > KNOWN_FOR_MS + SAMPLE_SLACK_MS) {
      yield `${name}: goes by its terms for more than ${KNOWN_FOR_MS} ms`
    }
  }
}

/** Each lease was granted by the database: a claim under its token has changed something, or may have. */
function* grants({ leases, writes }: Trace): Generator<string> {
  const granted = new Set(writes.map(({ token }) => token && claimOf(token)))
  for (const { id, claim } of leases) {
    if (!granted.has(claim)) yield `${id}: ${claim} is believed, but no claim under it changed anything`
  }
}

export const claimOf = (token: string): string => token.slice(0, token.lastIndexOf('.'))

/** After a longer time without a sample this process stood still, and the replicas in it too: that isn't counted. */
const LONGEST_SAMPLE_MS = 500

/** What is due is begun with in time, as long as somebody has room. */
function* turns({ samples }: Trace): Generator<string> {
  const waiting = new Map<string, { fence: number; withRoomMs: number; told: boolean }>()
  let lastAt = samples[0]?.at.getTime() ?? 0
  for (const { at, due, hasRoom } of samples) {
    const tookMs = Math.min(at.getTime() - lastAt, LONGEST_SAMPLE_MS)
    lastAt = at.getTime()
    const ids = new Set(due.map(({ id }) => id))
    for (const id of waiting.keys()) if (!ids.has(id)) waiting.delete(id)
    for (const { id, fence } of due) {
      const known = waiting.get(id)
      const one = known && known.fence === fence ? known : { fence, withRoomMs: -tookMs, told: false }
      if (hasRoom) one.withRoomMs += tookMs
      else one.withRoomMs = 0
      if (one.withRoomMs > TURN_WITHIN_MS + SAMPLE_SLACK_MS && !one.told) {
        one.told = true
        yield `${id}: was due for ${one.withRoomMs} ms while a replica had room`
      }
      waiting.set(id, one)
    }
  }
}
