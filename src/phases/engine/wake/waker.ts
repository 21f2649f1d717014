import type { Collection, Document } from 'mongodb'
import {
  hasToken,
  idKey,
  LEASE_FIELDS,
  readOwnFields,
  type Terms,
  wakeSleepers,
  wasPutToSleep,
} from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import type { News } from '../../background/background.js'
import { type LifecycleModel, workingPhases } from '../../model/model.js'

const MOST_AT_ONCE = 500
/** The most documents that are kept for later; one that is dropped goes on at the end of its pause. */
const MOST_KEPT = 10_000
/** The first pause after which a held document is read again; it is doubled each time. */
const FIRST_PAUSE_MS = 20
const LONGEST_PAUSE_MS = 1_000
/** The time for which a document in another replica's share is left to that replica, which immediately claims what it wakes. */
const PATIENCE_MS = 60
/** The time within which documents are read together. */
const TOGETHER_MS = 10
/** The time after which a version no longer counts, because its source may have started over. Replicas hear the same news within seconds. */
const SAME_NEWS_MS = 60_000

export interface WakerOptions {
  readonly model: LifecycleModel
  readonly collection: Collection
  readonly terms: () => Terms
  readonly clock: Clock
  readonly serverNow: () => Date
  /** True if a document is in this replica's share of the lifecycle's claims. */
  readonly isOwn: (key: string, phase?: string) => boolean
  /** Called with documents of others' shares that have been woken here: they are claimed here too. */
  readonly waitedFor: (phase: string, key: string) => void
  /** Called when documents have just become due, with their phases. */
  readonly onWoken: (phases: readonly string[], woken: { count: number; source: string | undefined }) => void
  readonly onError: (error: unknown) => void
}

/** Decides from a sleeping document's progress if it is to be woken. */
export type WakeIf = (progress: unknown) => Promise<boolean>

/** A document to wake. */
interface Wanted {
  readonly id: unknown
  readonly news: News | undefined
  readonly untilMs: number
  /** The time when it is to be read: now, or later while it is held, or left to another replica. */
  readonly atMs: number
  /** The time that it was put off last. */
  readonly pauseMs: number
  /** The fence of the step that ran when it was first read. A later step knows the reason for the wake already. */
  readonly heldFence?: unknown
  /** The conditions, each of another requester: it is woken if one of them holds; absent: in any case. */
  readonly only?: ReadonlyMap<string, WakeIf>
}

interface Asleep {
  readonly one: Wanted
  readonly phase: string
  readonly fence: unknown
}

/**
 * Ends sleeps. Each wake is a read by `_id` and one conditional write; the document is then due as if its pause had passed, and nothing else of it
 * changes. Held ones are read again until they are let go, for as long as a step may take.
 *
 * It causes one superfluous step at most, where a step has begun between the news and the wake. N replicas that hear the same news read N times and
 * wake once. `progress.heard` names the news that a document was woken for last, and a step that begins after that write finds all that its replica
 * had heard until then. The replica whose share a document is in goes first.
 */
export class Waker {
  private readonly wanted = new Map<string, Wanted>()
  /** The number of documents that it has woken. */
  woken = 0
  private readonly working: readonly string[]
  private running: Promise<void> | undefined
  private timer: NodeJS.Timeout | undefined
  private stopped = false

  constructor(private readonly options: WakerOptions) {
    this.working = workingPhases(options.model)
  }

  /** Wakes documents. Returns immediately; requests during a wake are batched. */
  wake(ids: readonly unknown[], news?: News): void {
    if (this.stopped) return
    const { clock, model, isOwn } = this.options
    const nowMs = clock.monotonicMs()
    // As long as a step may take, and its lease after it.
    const untilMs = nowMs + model.settings.stepTimeoutMs + model.settings.lockTimeoutMs
    for (const id of ids) {
      const key = idKey(id)
      const before = this.wanted.get(key)
      if (!before && this.wanted.size >= MOST_KEPT) break
      const isDue = !news || (before && before.atMs <= nowMs) || isOwn(key)
      const atMs = isDue ? nowMs : nowMs + PATIENCE_MS
      // Another reason than the news is not over when these have been heard.
      const latest = before && !before.news ? undefined : later(before?.news, news)
      this.wanted.set(key, { id, news: latest, untilMs, atMs, pauseMs: FIRST_PAUSE_MS / 2 })
    }
    this.run()
  }

  /**
   * Wakes one document, once it sleeps, if its progress meets a condition. One that is neither held nor asleep when it is read is left alone.
   * @param requester only the newest question of a requester counts
   */
  wakeIf(id: unknown, requester: string, isDue: WakeIf): void {
    if (this.stopped) return
    const { clock, model } = this.options
    const key = idKey(id)
    const before = this.wanted.get(key)
    if (!before && this.wanted.size >= MOST_KEPT) return
    const nowMs = clock.monotonicMs()
    const untilMs = nowMs + model.settings.stepTimeoutMs + model.settings.lockTimeoutMs
    // One that is to be woken in any case is woken for this, too: the step that runs now may have begun before it.
    const isAnyway = before && !before.only
    const only = isAnyway ? undefined : new Map([...(before?.only ?? []), [requester, isDue] as const])
    this.wanted.set(key, {
      id,
      news: undefined,
      untilMs,
      atMs: nowMs,
      pauseMs: FIRST_PAUSE_MS / 2,
      ...(only && { only }),
    })
    this.run()
  }

  /** Resolves when those that are to be woken on a condition have been looked at; they stay wanted where other replicas hold them. */
  async settled(): Promise<void> {
    while (this.running) await this.running
    const nowMs = this.options.clock.monotonicMs()
    const waiting = [...this.wanted].filter(([, one]) => one.only)
    if (waiting.length === 0) return
    for (const [key, one] of waiting) this.wanted.set(key, { ...one, atMs: nowMs })
    this.run()
    await this.running
  }

  async stop(): Promise<void> {
    this.stopped = true
    clearTimeout(this.timer)
    this.wanted.clear()
    await this.running
  }

  /** Wakes the documents that are to be read now, or waits until the first one is. */
  private run(): void {
    if (this.stopped || this.running || this.wanted.size === 0) return
    clearTimeout(this.timer)
    let firstMs = Number.POSITIVE_INFINITY
    for (const { atMs } of this.wanted.values()) firstMs = Math.min(firstMs, atMs)
    const inMs = firstMs - this.options.clock.monotonicMs()
    if (inMs > 0) this.timer = setTimeout(() => this.run(), Math.max(1, inMs)).unref()
    else {
      this.running = this.wakeAll().finally(() => {
        this.running = undefined
        this.run()
      })
    }
  }

  private async wakeAll(): Promise<void> {
    // The requests of one turn of the event loop are batched.
    await Promise.resolve()
    for (let batch = this.nextBatch(); batch.length > 0; batch = this.nextBatch()) {
      try {
        await this.wakeBatch(batch)
      } catch (error) {
        for (const one of batch) this.keep(one)
        this.options.onError(error)
      }
    }
  }

  /** Takes those to be read now off the list, and with them those whose time has run out. */
  private nextBatch(): Wanted[] {
    const nowMs = this.options.clock.monotonicMs()
    const batch: Wanted[] = []
    for (const [key, one] of this.wanted) {
      if (batch.length === MOST_AT_ONCE) break
      if (one.atMs > nowMs + TOGETHER_MS) continue
      this.wanted.delete(key)
      if (one.untilMs > nowMs) batch.push(one)
    }
    return batch
  }

  /** Puts it back to be read again after a pause, unless it has been requested again since. */
  private keep(one: Wanted): void {
    const key = idKey(one.id)
    if (this.stopped || this.wanted.has(key)) return
    const pauseMs = Math.min(LONGEST_PAUSE_MS, one.pauseMs * 2)
    this.wanted.set(key, { ...one, atMs: this.options.clock.monotonicMs() + pauseMs, pauseMs })
  }

  private async wakeBatch(batch: readonly Wanted[]): Promise<void> {
    const found = await this.look(batch)
    const asleep: Asleep[] = []
    for (const one of batch) {
      const document = found.get(idKey(one.id))
      if (!document || this.knowsVersion(document, one.news)) continue
      if ('heldFence' in one && document['fence'] !== one.heldFence) continue
      if (hasToken(document)) this.keep({ ...one, heldFence: document['fence'] })
      else if (wasPutToSleep(document) && (await this.isMeant(document, one)))
        asleep.push({ one, phase: document['phase'], fence: document['fence'] })
    }
    const bySource = Map.groupBy(asleep, ({ one }) => one.news?.source)
    for (const [source, members] of bySource) await this.end(source, members)
  }

  private async isMeant(document: Document, { only }: Wanted): Promise<boolean> {
    if (!only) return true
    for (const isDue of only.values()) if (await isDue(document[this.options.model.settings.progress])) return true
    return false
  }

  /** Reads those in working phases: resting and final ones have no step that could go on. */
  private async look(batch: readonly Wanted[]): Promise<Map<string, Document>> {
    const { collection, model } = this.options
    const projection = { ...LEASE_FIELDS, phase: 1, fence: 1, ...fieldsOf(model.settings.progress) }
    const wanted = { _id: { $in: batch.map(({ id }) => id as never) }, phase: { $in: [...this.working] } }
    const documents = await readOwnFields((how) => collection.find(wanted, { projection, ...how }).toArray())
    return new Map(documents.map((document) => [idKey(document['_id']), document]))
  }

  private knowsVersion(document: Document, news: News | undefined): boolean {
    const heard = document[this.options.model.settings.progress]?.heard
    if (!news || heard?.source !== news.source || !(heard.version >= news.version)) return false
    return heard.at instanceof Date && this.options.serverNow().getTime() - heard.at.getTime() < SAME_NEWS_MS
  }

  /** Ends sleeps. A document that was claimed or woken since the read no longer matches: its step begins after the news. */
  private async end(source: string | undefined, members: readonly Asleep[]): Promise<void> {
    const { collection, terms, isOwn, waitedFor, onWoken } = this.options
    const version = Math.max(...members.map(({ one }) => one.news?.version ?? 0))
    const sleepers = members.map(({ one, fence }) => ({ id: one.id, fence }))
    const heard = source === undefined ? undefined : { source, version }
    const count = await wakeSleepers(collection, terms(), this.working, sleepers, heard)
    if (count === 0) return
    this.woken += count
    // Those in others' shares, if woken by news, were left to them first: they had their time.
    for (const { one, phase } of members) {
      const key = idKey(one.id)
      if (one.news && !isOwn(key, phase)) waitedFor(phase, key)
    }
    onWoken([...new Set(members.map(({ phase }) => phase))], { count, source })
  }
}

const READ = ['heard', 'awaits', 'childrenFrom']
const fieldsOf = (progress: string): Document => Object.fromEntries(READ.map((name) => [`${progress}.${name}`, 1]))

/** The news with the higher version if both are of one source; otherwise the one that came last. */
const later = (before: News | undefined, news: News | undefined): News | undefined =>
  before && news && before.source === news.source && before.version > news.version ? before : news
