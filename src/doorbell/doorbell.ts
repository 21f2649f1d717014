import type { Db } from 'mongodb'
import type { DoorbellMode } from '../options/index.js'
import { type Clock, systemClock } from '../time/index.js'
import { type Hearing, Listener } from './listener.js'
import type { Ring } from './ring.js'
import { Ringer } from './ringer.js'
import { type DoorbellKind, openCapped, openChangeStream, type RingSource } from './sources.js'

/** The options of `new Doorbell(...)`. */
export interface DoorbellOptions {
  /** The database whose doorbell this is. */
  readonly db: Db
  /** The same database on a client made for listening (`doorbellClient`). Default: `db`; listening then takes a connection from its pool. */
  readonly listeningDb?: Db | undefined
  /** The way to listen. `auto` is `capped`. */
  readonly mode: Exclude<DoorbellMode, 'off'>
  /** True if the collection may be created. */
  readonly create: boolean
  /** The identity of the ringer and listener. */
  readonly self: string
  /** For tests: measures the pace of rings. Default: the process's clock. */
  readonly clock?: Clock | undefined
  /** Called when it begins to hear, and when it stops hearing and why. */
  readonly onHearing?: ((hearing: Hearing) => void) | undefined
}

/**
 * The doorbell of a database, the collection `phaselock.doorbell` (docs/doorbell.md). It lets replicas know that there is something
 * to look for, so that they needn't wait for their next tick. Only a hint: a replica that hears it looks, and losing every ring
 * costs a tick. A package rings for a topic of its own, in place of a lifecycle's name; replicas ignore it.
 * @example new Doorbell({ db, mode: 'capped', create: true, self: 'api-1' }).ring({ lifecycles: ['my-package'], phases: ['users'], ids: ['ann'] })
 */
export class Doorbell extends Ringer {
  constructor(private readonly options: DoorbellOptions) {
    super(options.db, options.self, options.clock)
  }

  /**
   * Listens to the rings of others for these lifecycles until it is stopped, whatever happens to the database. `onRing` calls never overlap; all
   * rings during a call are merged into one more call. A ring without phases may be about anything: rings may have been lost.
   * @example doorbell.listen(['my-package'], async ({ ids }) => ids?.forEach((id) => cache.delete(id)))
   */
  listen(names: readonly string[], onRing: (ring: Ring) => Promise<unknown>): Listener {
    const { db, listeningDb = db, mode, create, self, clock = systemClock, onHearing = () => undefined } = this.options
    const options = { db: listeningDb, create, by: self }
    let tried: DoorbellKind | undefined
    const open = async (lastError: unknown): Promise<RingSource> => {
      // The requirements of a change stream may be missing permanently (rights, a replica set): the next attempt does without one.
      const isRefused = tried === 'changeStream' && isServersRefusal(lastError)
      tried = mode === 'changeStream' && !isRefused ? mode : 'capped'
      return tried === 'capped' ? openCapped(options) : openChangeStream(options)
    }
    return new Listener({ names, self, open, onRing, onHearing, clock })
  }
}

/** True if the server answered, and refused. */
const isServersRefusal = (error: unknown): boolean =>
  typeof (error as { code?: unknown } | undefined)?.code === 'number'
