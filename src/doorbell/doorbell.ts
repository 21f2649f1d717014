import type { Db } from 'mongodb'
import type { DoorbellMode } from '../options/index.js'
import { type Clock, systemClock } from '../time/index.js'
import { CappedSource } from './capped.js'
import { ChangeStreamSource } from './change-stream.js'
import { chooseKind } from './choose.js'
import { type Hearing, Listener } from './listener.js'
import type { Ring } from './ring.js'
import { Ringer } from './ringer.js'
import type { DoorbellKind, RingSource } from './source.js'

/**
 * Tells replicas that there is something to look for, so that they needn't wait for their next tick. Only a hint: a replica that
 * hears it looks, and losing every ring costs a tick.
 */
export interface Doorbell {
  /** Returns at once and never throws; in a storm rings are merged, at most 20 a second. */
  ring(ring: Ring): void
  /** Sends what is waiting for its turn; resolves when that is sent or given up, after a second at most. */
  flush(): Promise<void>
  /**
   * Listens to anybody else's rings for these lifecycles until it is stopped, whatever happens to the database.
   * `onRing` is never called while it is running; all rings meanwhile make one more call.
   */
  listen(names: readonly string[], onRing: (ring: Ring) => Promise<unknown>): Listening
}

export interface Listening {
  stop(): Promise<void>
}

export interface DoorbellOptions {
  /** The database on which it rings. */
  readonly db: Db
  /** The same database on a client made for listening (`doorbellClient`). Default: `db`, from whose pool it then takes a connection. */
  readonly listeningDb?: Db | undefined
  readonly mode: Exclude<DoorbellMode, 'off'>
  /** Whether the collection may be created. */
  readonly create: boolean
  /** Who rings and listens. */
  readonly self: string
  readonly clock?: Clock | undefined
  /** Called when it begins to hear, and when it stops hearing and why. */
  readonly onHearing?: ((hearing: Hearing) => void) | undefined
}

/** The doorbell of a database: the collection `phaselock.doorbell`. See docs/doorbell.md. */
export class DatabaseDoorbell implements Doorbell {
  private readonly ringer: Ringer
  private readonly clock: Clock

  constructor(private readonly options: DoorbellOptions) {
    this.clock = options.clock ?? systemClock
    this.ringer = new Ringer(options.db, options.self, this.clock)
  }

  ring(ring: Ring): void {
    this.ringer.ring(ring)
  }

  flush(): Promise<void> {
    return this.ringer.flush()
  }

  listen(names: readonly string[], onRing: (ring: Ring) => Promise<unknown>): Listening {
    const { db, listeningDb = db, mode, create, self, onHearing = () => undefined } = this.options
    const options = { db: listeningDb, create, by: self }
    let tried: DoorbellKind | undefined
    const source = async (lastError: unknown): Promise<RingSource> => {
      const chosen = await chooseKind(listeningDb, mode)
      // What a change stream needs may be missing for good (rights, an old storage engine): the next attempt does without one.
      const isRefused = tried === 'changeStream' && isServersRefusal(lastError)
      tried = chosen === 'changeStream' && !isRefused ? chosen : 'capped'
      return tried === 'capped' ? new CappedSource(options) : new ChangeStreamSource(options)
    }
    return new Listener({ names, self, source, onRing, onHearing, clock: this.clock })
  }
}

/** Whether the server answered, and refused. */
const isServersRefusal = (error: unknown): boolean =>
  typeof (error as { code?: unknown } | undefined)?.code === 'number'
