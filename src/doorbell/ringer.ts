import { hostname } from 'node:os'
import type { Db } from 'mongodb'
import { answered, awaitMsOf } from '../database/index.js'
import { type Clock, sleep, systemClock } from '../time/index.js'
import { DOORBELL_COLLECTION, isNotCapped, store } from './collection.js'
import { mergeRings, type Ring } from './ring.js'
import { RING_PACE, Turns } from './turns.js'

/** The time for which a check stays valid: that a listener is there, or that there is none. */
const LISTENED_FOR_MS = 60_000
const UNHEARD_FOR_MS = 2_000
const FLUSH_WITHIN_MS = 1_000

/**
 * Rings: stores one entry for all rings since the last one, at most 20 a second, and never drops the last of a storm. No caller
 * waits for it, and it never throws: a ring that fails costs a tick.
 *
 * It only rings if there is a capped collection with an entry, which each listener ensures: an insert into a missing one would
 * create a collection that grows forever. It checks this only when there is something to ring, and at most once a minute, or every
 * 2 s while there is no listener.
 */
export class Ringer {
  private pending: Ring | undefined
  private readonly turns: Turns
  private sending = false
  private sent = Promise.resolve()
  private hurry = new AbortController()
  private heard: { readonly isHeard: boolean; readonly atMs: number } | undefined

  constructor(
    private readonly db: Db,
    private readonly by: string,
    private readonly clock: Clock = systemClock,
    pace = RING_PACE,
  ) {
    this.turns = new Turns(pace)
  }

  /** Returns immediately; in a storm rings are merged. */
  ring(ring: Ring): void {
    this.pending = this.pending ? mergeRings(this.pending, ring) : ring
    if (this.sending) return
    this.sending = true
    this.sent = this.send()
  }

  /**
   * Sends immediately any ring that waits for its turn. Resolves when it is stored or given up, after a second at most: for a
   * process about to end.
   */
  async flush(): Promise<void> {
    this.hurry.abort()
    await answered(this.sent, FLUSH_WITHIN_MS).catch(() => undefined)
    this.hurry = new AbortController()
  }

  private async send(): Promise<void> {
    // Not in the caller's turn of the event loop: all rings in that turn become one.
    await Promise.resolve()
    while (this.pending) {
      const waitMs = this.turns.take(this.clock.monotonicMs())
      if (waitMs > 0) await sleep(waitMs, { signal: this.hurry.signal, unref: true })
      const ring = this.pending
      this.pending = undefined
      try {
        if (await this.isHeard()) await store(this.db, this.by, ring)
      } catch {
        this.heard = undefined
      }
    }
    this.sending = false
  }

  private async isHeard(): Promise<boolean> {
    const now = this.clock.monotonicMs()
    const { isHeard, atMs } = this.heard ?? { isHeard: false, atMs: Number.NEGATIVE_INFINITY }
    if (now - atMs < (isHeard ? LISTENED_FOR_MS : UNHEARD_FOR_MS)) return isHeard
    this.heard = { isHeard: await this.look(), atMs: now }
    return this.heard.isHeard
  }

  /** Checks for listeners: only a capped collection accepts a tailable cursor, and only one that has an entry returns one. */
  private async look(): Promise<boolean> {
    const cursor = this.db
      .collection(DOORBELL_COLLECTION, { readPreference: 'primary' })
      .find({}, { tailable: true, batchSize: 1, projection: { _id: 1 } })
    try {
      return (await answered(cursor.tryNext(), awaitMsOf(this.db))) !== null
    } catch (error) {
      if (isNotCapped(error)) return false
      throw error
    } finally {
      void cursor.close().catch(() => undefined)
    }
  }
}

const ringers = new WeakMap<object, Map<string, Ringer>>()

/** This process's ringer for a database on a client: all its owners together ring at most 20 times a second. */
export function ringerOf(db: Db): Ringer {
  const client: object = (db as { client?: object }).client ?? db
  const known = ringers.get(client) ?? new Map<string, Ringer>()
  ringers.set(client, known)
  const found = known.get(db.databaseName) ?? new Ringer(db, `${hostname()}-${process.pid}`)
  known.set(db.databaseName, found)
  return found
}
