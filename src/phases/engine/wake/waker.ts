import type { Document } from 'mongodb'
import {
  hasToken,
  idKey,
  LEASE_FIELDS,
  readOwnFields,
  type WorkSplit,
  wakeSleepers,
  wasPutToSleep,
} from '../../../lock/index.js'
import { workingPhases } from '../../definition/model.js'
import type { LifecycleEnvironment } from '../environment.js'
import type { News } from './alongside.js'

const MOST_AT_ONCE = 500
/** More than these aren't kept for later; one that is dropped goes on at the end of its pause. */
const MOST_KEPT = 10_000
/** A document that is held is read again after these pauses, doubled each time. */
const FIRST_PAUSE_MS = 20
const LONGEST_PAUSE_MS = 1_000
/** What is in another replica's share is left to it for this long: that one claims at once what it wakes. */
const PATIENCE_MS = 60
/** Those whose time comes within it are read together. */
const TOGETHER_MS = 10
/** Replicas hear the same news within seconds. After this time a version no longer counts: its source may have started over. */
const SAME_NEWS_MS = 60_000

export interface WakerOptions
  extends Pick<LifecycleEnvironment, 'model' | 'collection' | 'terms' | 'clock' | 'serverNow'> {
  /** The one that this lifecycle's claims use: what is woken here on others' behalf is claimed here too. */
  readonly workSplit: Pick<WorkSplit, 'isOwn' | 'waitedFor'>
  /** Called when documents have just become due, with their phases. */
  readonly onWoken: (phases: readonly string[], woken: { count: number; source: string | undefined }) => void
  readonly onError: (error: unknown) => void
}

/** A document to wake. */
interface Wanted {
  readonly id: unknown
  readonly news: News | undefined
  readonly untilMs: number
  /** The fence of the step that ran when it was first read. A later step has begun with what it is woken for. */
  readonly heldFence?: unknown
  /** While it is held, or left to another replica: when it is read again, and how long that was put off. */
  readonly again?: { readonly atMs: number; readonly pauseMs: number }
}

interface Asleep {
  readonly one: Wanted
  readonly phase: string
  readonly fence: unknown
}

/**
 * Ends sleeps. Each wake is a read by `_id` and one conditional write; the document is then due as if its pause had passed, and nothing
 * else of it changes. Held ones are read again until they are let go, for as long as a step may take.
 *
 * It causes one superfluous step at most, where a step has begun between the news and the wake. N replicas that hear the same news read N
 * times and wake once: `progress.heard` says for which news a document was woken last, and a step that begins after that write finds all
 * that its replica had heard by then. The replica in whose share a document is goes first.
 */
export class Waker {
  private readonly wanted = new Map<string, Wanted>()
  /** To be read again: held documents, and those that are left to another replica for now. */
  private readonly held = new Map<string, Wanted>()
  private readonly working: readonly string[]
  private running: Promise<void> | undefined
  private timer: NodeJS.Timeout | undefined
  private timerAtMs = 0
  private stopped = false

  constructor(private readonly options: WakerOptions) {
    this.working = workingPhases(options.model)
  }

  /** Returns at once; what is asked for while a wake is under way is batched. */
  wake(ids: readonly unknown[], news?: News): void {
    if (this.stopped) return
    const { clock, model, workSplit } = this.options
    // As long as a step may take, and its lease after it.
    const untilMs = clock.monotonicMs() + model.settings.stepTimeoutMs + model.settings.lockTimeoutMs
    for (const id of ids) {
      const key = idKey(id)
      const before = this.wanted.get(key) ?? this.held.get(key)
      if (!before && this.wanted.size + this.held.size >= MOST_KEPT) break
      const one = { id, news: later(before?.news, news), untilMs }
      if (!news || this.wanted.has(key) || workSplit.isOwn(key)) {
        this.held.delete(key)
        this.wanted.set(key, one)
      } else this.keep(key, one, PATIENCE_MS)
    }
    this.run()
  }

  async stop(): Promise<void> {
    this.stopped = true
    clearTimeout(this.timer)
    this.wanted.clear()
    this.held.clear()
    await this.running
  }

  private run(): void {
    if (this.stopped || this.running || this.wanted.size === 0) return
    this.running = this.wakeAll().finally(() => {
      this.running = undefined
      this.run()
    })
  }

  private async wakeAll(): Promise<void> {
    // What is wanted in one turn of the event loop is batched.
    await Promise.resolve()
    while (this.wanted.size > 0 && !this.stopped) {
      const batch = [...this.wanted].slice(0, MOST_AT_ONCE)
      for (const [key] of batch) this.wanted.delete(key)
      try {
        await this.wakeBatch(batch.map(([, one]) => one))
      } catch (error) {
        for (const [key, one] of batch) this.keep(key, one)
        this.options.onError(error)
      }
    }
  }

  /** One timer for all that are kept, for the first of them. */
  private lookAgainAt(atMs: number): void {
    if (this.timer && this.timerAtMs <= atMs) return
    clearTimeout(this.timer)
    this.timerAtMs = atMs
    const inMs = Math.max(1, atMs - this.options.clock.monotonicMs())
    this.timer = setTimeout(() => this.lookAgain(), inMs).unref()
  }

  private lookAgain(): void {
    this.timer = undefined
    const now = this.options.clock.monotonicMs()
    for (const [key, one] of this.held) {
      if (one.again!.atMs > now + TOGETHER_MS) this.lookAgainAt(one.again!.atMs)
      else {
        this.held.delete(key)
        if (one.untilMs > now) this.wanted.set(key, one)
      }
    }
    this.run()
  }

  /** @param patienceMs how long it is left to another replica before it is first read */
  private keep(key: string, one: Wanted, patienceMs?: number): void {
    if (this.stopped || this.wanted.has(key)) return
    const pauseMs = one.again ? Math.min(LONGEST_PAUSE_MS, one.again.pauseMs * 2) : FIRST_PAUSE_MS
    const atMs = this.options.clock.monotonicMs() + (patienceMs ?? pauseMs)
    this.held.set(key, { ...one, again: { atMs, pauseMs: patienceMs === undefined ? pauseMs : FIRST_PAUSE_MS / 2 } })
    this.lookAgainAt(atMs)
  }

  private async wakeBatch(batch: readonly Wanted[]): Promise<void> {
    const found = await this.look(batch)
    const asleep: Asleep[] = []
    for (const one of batch) {
      const key = idKey(one.id)
      const document = found.get(key)
      if (!document || this.hasHeard(document, one.news)) continue
      if ('heldFence' in one && document['fence'] !== one.heldFence) continue
      if (hasToken(document)) this.keep(key, { ...one, heldFence: document['fence'] })
      else if (wasPutToSleep(document)) asleep.push({ one, phase: document['phase'], fence: document['fence'] })
    }
    const bySource = Map.groupBy(asleep, ({ one }) => one.news?.source)
    for (const [source, members] of bySource) await this.end(source, members)
  }

  /** Reads those in working phases: resting and final ones have no step that could go on. */
  private async look(batch: readonly Wanted[]): Promise<Map<string, Document>> {
    const { collection, model } = this.options
    const projection = { ...LEASE_FIELDS, phase: 1, fence: 1, [`${model.settings.progress}.heard`]: 1 }
    const wanted = { _id: { $in: batch.map(({ id }) => id as never) }, phase: { $in: [...this.working] } }
    const documents = await readOwnFields((how) => collection.find(wanted, { projection, ...how }).toArray())
    return new Map(documents.map((document) => [idKey(document['_id']), document]))
  }

  private hasHeard(document: Document, news: News | undefined): boolean {
    const heard = document[this.options.model.settings.progress]?.heard
    if (!news || heard?.source !== news.source || !(heard.version >= news.version)) return false
    return heard.at instanceof Date && this.options.serverNow().getTime() - heard.at.getTime() < SAME_NEWS_MS
  }

  /** A document that somebody has claimed or woken since the read no longer matches: its step begins after the news. */
  private async end(source: string | undefined, members: readonly Asleep[]): Promise<void> {
    const { collection, terms, workSplit, onWoken } = this.options
    const version = Math.max(...members.map(({ one }) => one.news?.version ?? 0))
    const sleepers = members.map(({ one, fence }) => ({ id: one.id, fence }))
    const heard = source === undefined ? undefined : { source, version }
    const count = await wakeSleepers(collection, terms(), this.working, sleepers, heard)
    if (count === 0) return
    // Those in others' shares, if woken by news, were left to them first: they had their time.
    for (const { one, phase } of members) {
      const key = idKey(one.id)
      if (one.news && !workSplit.isOwn(key)) workSplit.waitedFor(phase, key)
    }
    onWoken([...new Set(members.map(({ phase }) => phase))], { count, source })
  }
}

/** The news with the higher version if both are of one source; otherwise the one that came last. */
const later = (before: News | undefined, news: News | undefined): News | undefined =>
  before && news && before.source === news.source && before.version > news.version ? before : news
