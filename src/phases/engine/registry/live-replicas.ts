import { hostname } from 'node:os'
import { isDeepStrictEqual } from 'node:util'
import type { Collection, Db, Document } from 'mongodb'
import { packageVersion } from '../../../config/index.js'
import { isServerError, protocolCollection } from '../../../database/index.js'
import {
  beat,
  endBeats,
  type FlowMinute,
  forgetDead,
  LIFECYCLES_COLLECTION,
  type LookResult,
  leaveFlow,
  type Membership,
  PRESENT_EVERY_MS,
  type PresentReplica,
  partsOf,
  REPLICAS_COLLECTION,
  type ReplicaReport,
  sayGone,
  sayPresent,
  storeFlows,
} from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import { causesText, recordedError } from '../../errors/recorded-error.js'
import type { Logger } from '../../reporting/logger.js'
import type { FlowCounter } from './flow-counter.js'

/** The least time between two reports, when the replica no longer takes the phases that its last one names. */
const CHANGED_EVERY_MS = 10_000

/** The version of an older replica, which doesn't report it. */
const UNKNOWN = 'unknown'

export type PhasesOf = ReadonlyMap<string, readonly string[]>

interface Memberships {
  readonly all: Membership
  readonly byPhase: ReadonlyMap<string, Membership>
}

/**
 * The replicas to share the work with. Each one that ticks by itself announces itself in `phaselock.lifecycles` every 50 s, with the phases whose
 * documents it takes, and reads the other replicas with its look. A hint only: it decides which documents a replica tries for first, never which
 * replica holds one.
 */
export class LiveReplicas {
  private readonly collection: Collection<Document & { _id: string }>
  private readonly alone: Membership
  private readonly memberships = new Map<string, Memberships>()
  private versions = new Map<string, string | undefined>()
  private said: PhasesOf = new Map()
  private saidAtMs = Number.NEGATIVE_INFINITY

  /**
   * @param phases those whose documents it claims
   * @param takes true if it takes those of a phase now; asked in each tick
   * @param ticks true if this replica ticks by itself: one whose caller ticks it shares with no other replica, and takes all due documents
   */
  constructor(
    db: Db,
    private readonly identity: string,
    private readonly phases: PhasesOf,
    private readonly takes: (lifecycle: string, phase: string) => boolean,
    private readonly clock: Clock,
    private readonly ticks: () => boolean,
  ) {
    this.collection = protocolCollection(db, LIFECYCLES_COLLECTION)
    this.alone = { self: identity, replicas: [identity] }
  }

  /** The live replicas of a lifecycle, as of the last look; of a phase, those that take its documents. */
  membership(lifecycle: string, phase?: string): Membership {
    const known = this.ticks() ? this.memberships.get(lifecycle) : undefined
    return known?.byPhase.get(phase ?? '') ?? known?.all ?? this.alone
  }

  /** The number of replicas of each version, as of the last look. */
  countByVersion(): Record<string, number> {
    const counts: Record<string, number> = {}
    for (const version of this.versions.values()) {
      const label = typeof version === 'string' ? version : UNKNOWN
      counts[label] = (counts[label] ?? 0) + 1
    }
    return counts
  }

  /** Announces this replica when that is due, or immediately. One command for all lifecycles. */
  async say(when: 'ifDue' | 'atOnce' = 'ifDue'): Promise<void> {
    if (!this.ticks()) return
    const now = this.clock.monotonicMs()
    const takes = new Map(
      [...this.phases].map(([lifecycle, phases]) => [lifecycle, phases.filter((one) => this.takes(lifecycle, one))]),
    )
    const sinceMs = now - this.saidAtMs
    const isDue = sinceMs >= PRESENT_EVERY_MS || (sinceMs >= CHANGED_EVERY_MS && !isDeepStrictEqual(takes, this.said))
    if (when === 'ifDue' && !isDue) return
    this.saidAtMs = now
    this.said = takes
    const version = await packageVersion().catch(() => undefined)
    await sayPresent(this.collection, takes, { name: this.identity, ...(version && { version }) })
  }

  adopt({ replicas }: Pick<LookResult, 'replicas'>): void {
    this.versions = new Map([...replicas.values()].flat().map(({ name, version }) => [name, version]))
    for (const [lifecycle, phases] of this.phases) {
      const others = (replicas.get(lifecycle) ?? []).filter(({ name }) => name !== this.identity)
      const all = this.beside(others)
      const membershipOf = (phase: string): Membership => {
        const takers = others.filter((other) => !Array.isArray(other.phases) || other.phases.includes(phase))
        return takers.length === others.length ? all : this.beside(takers)
      }
      this.memberships.set(lifecycle, { all, byPhase: new Map(phases.map((phase) => [phase, membershipOf(phase)])) })
    }
  }

  private beside(others: readonly PresentReplica[]): Membership {
    return { self: this.identity, replicas: [...new Set([...others.map(({ name }) => name), this.identity])] }
  }

  /** Removes this replica's announcement. To be called once, when no more is to be claimed. */
  async leave(): Promise<void> {
    if (this.saidAtMs === Number.NEGATIVE_INFINITY) return
    await sayGone(this.collection, [...this.phases.keys()], this.identity)
  }
}

const FORGET_EVERY_MS = 3_600_000
/** The pause after a refusal: it isn't over in ten seconds, and each one is a line in the server's log. */
const REFUSED_AGAIN_MS = 600_000
const UNAUTHORIZED = 13
/** A replica that stops writes its last minutes at most this often: many that stop together hinder each other. */
const MOST_STORES = 10

export interface BeatsOptions {
  readonly db: Db
  readonly identity: string
  readonly clock: Clock
  readonly logger: Logger
  readonly everyMs: number
  readonly serverNow: () => Date
  readonly appVersion: string | undefined
  readonly flows: FlowCounter
  readonly figures: () => Pick<ReplicaReport, 'lifecycles' | 'limits' | 'loopMs' | 'tickMs'>
}

/**
 * A replica's document in `phaselock.replicas`, which shows it to people. No work depends on it or waits for a beat, and one that fails costs a line
 * in the log.
 */
export class Beats {
  private readonly replicas: Collection<Document & { _id: string }>
  private startedAtMs: number | undefined
  private nextAtMs = Number.NEGATIVE_INFINITY
  private forgetAtMs = Number.NEGATIVE_INFINITY
  private current: Promise<void> | undefined
  private isWritten = false
  private failures = 0
  private ended = false

  constructor(private readonly options: BeatsOptions) {
    this.replicas = protocolCollection(options.db, REPLICAS_COLLECTION)
  }

  /** Sends one if it is due and the one before is over. Returns immediately. */
  ifDue(): void {
    const now = this.options.clock.monotonicMs()
    const { everyMs, flows } = this.options
    if (everyMs > 0) flows.turn()
    if (everyMs === 0 || this.ended || this.current || now < this.nextAtMs) return
    this.nextAtMs = now + everyMs
    this.startedAtMs ??= now
    this.current = this.send(now, this.startedAtMs).finally(() => {
      this.current = undefined
    })
  }

  /** Removes the document once all that it counted is stored; to be called once, when nothing is held any more. Never rejects. */
  async end(): Promise<void> {
    this.ended = true
    await this.current
    if (!this.isWritten) return
    const { identity, flows } = this.options
    const minutes = flows.last()
    const leaving = (await this.isStored(minutes))
      ? endBeats(this.replicas, identity)
      : leaveFlow(this.replicas, identity, flows.unsent())
    await leaving.catch(() => undefined)
  }

  /**
   * Stores the last minutes, again and again until all of them are found there: of several replicas that write the same minute, one succeeds. Until then the
   * document keeps them for the others.
   */
  private async isStored(minutes: readonly FlowMinute[]): Promise<boolean> {
    const { db, identity, appVersion, serverNow } = this.options
    const parts = partsOf(identity, minutes, appVersion)
    try {
      for (let i = 0; i < MOST_STORES; i += 1) if ((await storeFlows(db, parts, serverNow())) === 0) return true
      return false
    } catch (error) {
      // Without the right to store them no other replica does it either.
      return isServerError(error, UNAUTHORIZED)
    }
  }

  private async send(now: number, startedAtMs: number): Promise<void> {
    const { identity, everyMs, figures, flows, appVersion } = this.options
    try {
      const version = await packageVersion().catch(() => undefined)
      const report = { version, appVersion, ...place(), everyMs, ...figures() }
      const minutes = flows.unsent()
      await beat(this.replicas, identity, report, now - startedAtMs, minutes)
      flows.sent(minutes)
      this.isWritten = true
      this.failures = 0
      if (now >= this.forgetAtMs) {
        this.forgetAtMs = now + FORGET_EVERY_MS
        await forgetDead(this.replicas)
      }
    } catch (error) {
      this.failed(error)
    }
  }

  /**
   * Logs a failure that lasts. An error that isn't the server's answer is an outage, which the tick reports; the start has reported missing rights.
   */
  private failed(error: unknown): void {
    if (!isServerError(error)) return
    if (isServerError(error, UNAUTHORIZED)) {
      this.nextAtMs += REFUSED_AGAIN_MS
      return
    }
    this.failures += 1
    if (this.failures !== 2) return
    const known = recordedError(error)
    const why = `${known.message}${causesText(known)}`
    this.options.logger.warn(`this replica works, but its document in ${REPLICAS_COLLECTION} can't be written: ${why}`)
  }
}

function place(): Pick<ReplicaReport, 'host' | 'pid' | 'pod'> {
  const { POD_NAME, KUBERNETES_SERVICE_HOST } = process.env
  const host = hostname()
  return { host, pid: process.pid, pod: POD_NAME || (KUBERNETES_SERVICE_HOST ? host : undefined) }
}
