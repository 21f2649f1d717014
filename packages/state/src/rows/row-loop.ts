import type { Db } from 'mongodb'
import type { Duration } from 'phaselock'
import type { SharedStore, SharedValues } from '../store/index.js'
import { LoopExpired, NoRows } from './errors.js'
import { requireSame, rowsHead, rowsOfBatch } from './import-rows.js'
import type { Row } from './sources.js'

/** The options of `rowLoop`. */
export interface RowLoopOptions {
  readonly db: Db
  /** The store of the loop's place. */
  readonly store: SharedStore
  /** The session whose loop it is: one loop each. */
  readonly session: string
  /** The time that the place is kept after each row. Default 1h. */
  readonly ttl?: Duration | undefined
}

interface Place {
  readonly name: string
  /** The time of the import, in milliseconds since 1970: as JSON, which people can read in the store. */
  readonly at?: number
  readonly batch: number
  readonly index: number
}

/** A loop over imported rows outside of a lifecycle, whose place is kept in the shared store. */
export interface RowLoop {
  /** Begins at a row of the source, whatever the session's loop was. @param at its number. Default 1 @throws NoRows */
  begin(rows: string, at?: number): Promise<void>
  /**
   * The rows from the place on. A row counts as done when the next one is asked for, or the loop ends; each renews the place.
   * @throws NoRows, also if the rows were removed and imported again; LoopExpired if there is no place; LoopTaken if another process goes on with it
   */
  rows(): AsyncGenerator<{ readonly number: number; readonly row: Row }>
  /** Forgets the place. */
  end(): Promise<void>
}

/** The place of a loop was moved by another process. */
export class LoopTaken extends Error {
  override readonly name = 'LoopTaken'
  constructor(
    /** The session of the loop. */
    readonly session: string,
  ) {
    super(
      `expected the loop of the session ${session} to be this process's alone, but another one has moved its place; let one of them go on`,
    )
  }
}

/**
 * A loop over imported rows outside of a lifecycle. Where it can be a document of a lifecycle, prefer `eachRow`: its place doesn't expire.
 * @example
 * ```ts
 * const loop = rowLoop({ db, store, session: 's1' })
 * await loop.begin('orders-2026-11')
 * for await (const { number, row } of loop.rows()) await handle(number, row)
 * ```
 */
export function rowLoop({ db, store, session, ttl = '1h' }: RowLoopOptions): RowLoop {
  const places: SharedValues<Place> = store.of<Place>('loop', { ttl })
  return {
    async begin(name, at = 1) {
      await places.set(session, await placeOf(db, name, at))
    },
    async *rows() {
      let entry = await places.entry(session)
      if (!entry) throw new LoopExpired(session)
      let place: Place | undefined = entry.value
      let { version } = entry
      const { batches, at } = await rowsHead(db, place.name)
      requireSame(place.name, place.at, at.getTime())
      while (place && place.batch < batches) {
        const batch = await rowsOfBatch(db, place.name, place.batch)
        const [number, row] = batch[place.index] ?? []
        if (number !== undefined && row !== undefined) yield { number, row }
        const next: Place =
          place.index + 1 < batch.length
            ? { ...place, index: place.index + 1 }
            : { ...place, batch: place.batch + 1, index: 0 }
        const moved = await places.compareAndSet(session, version, next)
        if (moved === undefined) {
          entry = await places.entry(session)
          throw entry ? new LoopTaken(session) : new LoopExpired(session)
        }
        place = next
        version = moved
      }
      await places.delete(session, { version })
    },
    async end() {
      await places.delete(session)
    },
  }
}

async function placeOf(db: Db, name: string, at: number): Promise<Place> {
  const { batches, at: importedAt } = await rowsHead(db, name)
  for (let batch = 0; batch < batches; batch += 1) {
    const index = (await rowsOfBatch(db, name, batch)).findIndex(([number]) => number >= at)
    if (index >= 0) return { name, at: importedAt.getTime(), batch, index }
  }
  throw new NoRows(name, `expected the rows ${name} to have a row ${at} or a later one, got none`)
}
