import type { Document } from 'mongodb'
import { ClaimWriter } from '../../../src/lock/claim/claim-writer.js'
import { EndWriter } from '../../../src/lock/end/end-writer.js'
import { isDue, Lease, REPLICAS_COLLECTION, type StepEnd, termsOf } from '../../../src/lock/index.js'
import { StepRun } from '../../../src/phases/engine/run/step-run.js'
import { systemClock } from '../../../src/time/index.js'
import type { Answered, TcpProxy } from '../tcp-proxy.js'
import { contradictions } from './check.js'
import type { Applied, Belief, Documents, Run, Sample, Told, Trace } from './trace.js'

/** A collection of whatever documents. */
interface ReadableCollection {
  find(filter?: never, options?: object): { toArray(): Promise<Document[]> }
}

type Method = (...args: never[]) => unknown

const claimNameOf = ({ claim }: Pick<Lease, 'claim'>): string => `${claim.replica}#${claim.number}`

/** A lease of this test's replicas, and how long they were told to believe in it. */
class Watched {
  private endedAtMs = Number.POSITIVE_INFINITY
  private lastsUntilMs: number

  constructor(
    private readonly lease: Lease,
    private readonly sinceMs: number,
  ) {
    this.lastsUntilMs = sinceMs + lease.lastsMs
  }

  renewed(): void {
    this.lastsUntilMs = systemClock.monotonicMs() + this.lease.leftMs()
  }

  ended(): void {
    this.endedAtMs = Math.min(this.endedAtMs, systemClock.monotonicMs())
  }

  belief(): Belief {
    const { lease, sinceMs } = this
    const untilMs = Math.min(this.endedAtMs, this.lastsUntilMs)
    return { id: String(lease.id), claim: claimNameOf(lease), sinceMs, untilMs }
  }
}

/**
 * Writes down what all replicas of this process believe and say, and what a server behind a proxy answers. It listens at the methods
 * through which all of it goes, so that the product has no part in it.
 */
export class TraceRecorder {
  private readonly leases = new Map<Lease, Watched>()
  private readonly runs: Run[] = []
  private readonly verdicts: Told[] = []
  private readonly unanswered = new Set<Omit<Told, 'verdict'>>()
  private readonly writes: Applied[] = []
  private readonly samples: Sample[] = []
  private readonly restore: (() => void)[] = []

  private constructor() {}

  static start(proxy?: TcpProxy): TraceRecorder {
    const recorder = new TraceRecorder()
    recorder.listen()
    if (proxy) {
      proxy.onAnswered = (answered) => recorder.writes.push(...appliedIn(answered))
      recorder.restore.push(() => {
        proxy.onAnswered = undefined
      })
    }
    return recorder
  }

  stop(): void {
    for (const restore of this.restore.splice(0)) restore()
  }

  /** What there is to be done at this moment, and whether anybody has room for it. */
  async sample(
    collection: ReadableCollection,
    phases: readonly string[],
    lockTimeoutMs: number,
    hasRoom: boolean,
    at = systemClock.now(),
  ): Promise<void> {
    const due = { phase: { $in: [...phases] }, $expr: isDue(termsOf(lockTimeoutMs)) }
    const found = await collection.find(due as never, { projection: { fence: 1 } }).toArray()
    this.samples.push({
      at,
      due: found.map((one) => ({ id: String(one['_id']), fence: Number(one['fence'] ?? 0) })),
      hasRoom,
    })
  }

  trace(): Trace {
    const { runs, verdicts, writes, samples } = this
    const leases = [...this.leases.values()].map((one) => one.belief())
    return { leases, runs, verdicts, unanswered: [...this.unanswered], writes, samples }
  }

  /** What of it is untrue, by what stands in the collection now. */
  async contradictions(collection: ReadableCollection): Promise<string[]> {
    const found = await collection.find().toArray()
    const documents: Documents = new Map(found.map((document) => [String(document['_id']), document]))
    return contradictions(this.trace(), documents)
  }

  private listen(): void {
    const { leases, verdicts, unanswered, runs } = this
    // Of each class the method through which all of it goes.
    this.around(
      ClaimWriter.prototype as never,
      'leased',
      (leased) =>
        function (this: unknown, ...args: unknown[]) {
          const claimed = leased.apply(this, args as never) as { lease: Lease }
          leases.set(claimed.lease, new Watched(claimed.lease, systemClock.monotonicMs() - claimed.lease.ageMs()))
          return claimed
        },
    )
    this.around(
      Lease.prototype,
      'renewed',
      (renewed) =>
        function (this: Lease, ...args: never[]) {
          renewed.apply(this, args)
          leases.get(this)?.renewed()
        },
    )
    this.around(
      Lease.prototype,
      'end',
      (end) =>
        function (this: Lease) {
          leases.get(this)?.ended()
          end.apply(this)
        },
    )
    this.around(
      EndWriter.prototype,
      'write',
      (write) =>
        async function (this: EndWriter, ends: readonly StepEnd[], ...more: never[]) {
          const asked = ends.map(({ lease, end }) => ({
            ...{ id: String(lease.id), claim: claimNameOf(lease), token: lease.token },
            end: end.kind,
          }))
          for (const one of asked) unanswered.add(one)
          const told = (await write.apply(this, [ends, ...more] as never)) as Awaited<ReturnType<EndWriter['write']>>
          ends.forEach((end, i) => {
            const verdict = told.get(end)
            if (!verdict) return
            unanswered.delete(asked[i]!)
            verdicts.push({ ...asked[i]!, verdict: verdict.kind })
          })
          return told
        },
    )
    this.around(
      StepRun.prototype,
      'settle',
      (settle) =>
        function (this: StepRun, how: Parameters<StepRun['settle']>[0]) {
          const { lease } = this.held
          const run = { id: String(lease.id), claim: claimNameOf(lease), token: lease.token }
          const watched = async () => {
            const at = runs.push({ ...run, fromMs: systemClock.monotonicMs(), toMs: Number.POSITIVE_INFINITY }) - 1
            try {
              return await how.call()
            } finally {
              runs[at] = { ...runs[at]!, toMs: systemClock.monotonicMs() }
            }
          }
          return settle.apply(this, [{ ...how, call: watched }] as never)
        },
    )
  }

  private around<T extends object>(prototype: T, name: keyof T, by: (method: Method) => Method): void {
    const method = prototype[name]
    Object.assign(prototype, { [name]: by(method as Method) })
    this.restore.push(() => Object.assign(prototype, { [name]: method }))
  }
}

/** The writes of a command that go by a lockTimeout, if it changed anything, or may have. */
function appliedIn({ body, reply, sentAt }: Answered): Applied[] {
  if (reply && (reply['ok'] !== 1 || reply['writeErrors'])) return []
  const applied = (what: Applied['what'], filter: Document, token?: string): Applied[] => [
    { what, sentAt, validUntil: validUntilIn(filter), token, isCertain: reply !== undefined },
  ]
  if (body['findAndModify'] && (!reply || reply['value'])) {
    const what = kindOf(body['update'])
    return what ? applied(what, body['query'], tokenIn(body['update'])) : []
  }
  const [update, ...more] = (body['updates'] ?? body['deletes'] ?? []) as Document[]
  if (!update || more.length > 0 || (reply && !(reply['n'] > 0))) return []
  if (body['delete'] === REPLICAS_COLLECTION) return [] // a replica's own document: it has stopped
  if (body['delete']) return applied('removal', update['q'])
  const what = kindOf(update['u'])
  return what ? applied(what, update['q'], tokenIn(update['u'])) : []
}

/** Told by what it sets: only a claim gives a fence to what may have had none, only a renewal takes the larger lockedAt. */
function kindOf(update: unknown): Applied['what'] | undefined {
  const set: Document | undefined = Array.isArray(update) ? update[0]?.$set : undefined
  if (!set) return undefined
  if (set['lockedAt']?.$max) return 'renewal'
  if (set['fence'] && set['lockedAt']) return 'claim'
  if (set['phase'] && set['lockedBy'] === '$$REMOVE' && !JSON.stringify(set).includes('endedBy')) return 'rule'
  return undefined
}

const tokenIn = (update: unknown): string | undefined => {
  const { lockedBy } = (update as [Document])[0]['$set']
  return lockedBy?.$literal ?? lockedBy?.$cond?.[1]?.$literal
}

/** The date that a filter compares with the server's time. */
function validUntilIn(filter: unknown): Date | undefined {
  if (typeof filter !== 'object' || filter === null || filter instanceof Date) return undefined
  const { $lte } = filter as { $lte?: unknown }
  if (Array.isArray($lte) && $lte[0] === '$$NOW' && $lte[1] instanceof Date) return $lte[1]
  for (const value of Object.values(filter)) {
    const found = validUntilIn(value)
    if (found) return found
  }
  return undefined
}
