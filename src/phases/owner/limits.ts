import type { Db } from 'mongodb'
import {
  type Limit,
  MOST_PAUSES,
  MOST_SLOTS,
  pauseLimit,
  type Rate,
  readLimits,
  removeLimit,
  resumeLimit,
  setLimit,
} from '../../lock/index.js'
import { checkOptions, InvalidOptions, t } from '../../options/index.js'
import { formatMs } from '../../time/index.js'
import { limitName, RATE, rateFrom } from '../model/settings.js'
import { pauseOf, severalPauses } from './owner-calls.js'
import type { PauseOptions } from './owner-types.js'

/** The settings of a limit; one that isn't given stays as it is. */
export interface LimitOptions {
  /** The number of slots, 0 to 1,000,000; 0: nothing that needs one begins. null: the number that lifecycles declare; where none does, any number. */
  readonly slots?: number | null | undefined
  /** The number of documents that may begin in a span of time: `100/1m`, `5/1s`. null: any number. */
  readonly rate?: string | null | undefined
}

/** The type with null, which takes back a setting. */
const orNull = <T>(type: t.Type<T>) =>
  t.optional(t.chosen<T | null>((given) => (given === null ? t.anything<null>() : type) as t.Type<T | null>))
const limitOptions = t.object({ slots: orNull(t.whole(0, MOST_SLOTS)), rate: orNull(t.text) })
const named = t.object({ name: limitName })

/**
 * The limits of a database (docs/limits.md): how many documents all replicas together may work on at the same time, or begin in a span of time.
 * Lifecycles name the limits that they need.
 * @example
 * ```ts
 * const limits = new Limits(db)
 * await limits.set('gitlab-api', { slots: 5, rate: '100/1m' })
 * await limits.list() // [{ name: 'gitlab-api', slots: 5, rate: { starts: 100, perMs: 60_000 }, holders: [...] }]
 * ```
 * @throws InvalidOptions for what isn't a database
 */
export class Limits {
  constructor(private readonly db: Db) {
    checkOptions('new Limits', t.object({ db: t.aDatabase }), { db })
  }

  /**
   * Sets a limit, or creates it. In force with each replica's next request: immediately where it is raised; where it is lowered, running steps may
   * end.
   * @throws InvalidOptions
   */
  async set(name: string, options: LimitOptions): Promise<Limit> {
    checkOptions('limits.set', named, { name })
    const { slots, rate } = checkOptions('limits.set', limitOptions, options)
    if (slots === undefined && rate === undefined)
      throw new InvalidOptions('limits.set', ['expected slots, a rate or both, got neither'])
    return setLimit(this.db, name, { slots, rate: rate == null ? rate : rateOf(rate) })
  }

  /**
   * Pauses a limit: no document that needs it begins, running steps may end. An earlier pause by the same person is replaced; those of others stay.
   * @example await limits.pause('gitlab-api', { by: 'ana', reason: 'they have asked us to', for: '1h' })
   * @returns true if there is such a limit
   * @throws InvalidOptions
   */
  async pause(name: string, options: Omit<PauseOptions, 'phase' | 'id'>): Promise<boolean> {
    checkOptions('limits.pause', named, { name })
    const { kind } = await pauseLimit(this.db, name, pauseOf('limits.pause', options))
    if (kind === 'tooMany')
      throw new InvalidOptions('limits.pause', [
        `by: expected one of the ${MOST_PAUSES} people who have paused ${name}`,
      ])
    return kind === 'paused'
  }

  /**
   * Ends a pause; those of others stay.
   * @param options `of`: the person whose pause ends. Default: the only one, where there is only one
   * @returns true if there was one
   * @throws InvalidOptions, also where several people have paused it and `of` doesn't say whose pause ends
   */
  async resume(name: string, options: { readonly of?: string | undefined } = {}): Promise<boolean> {
    checkOptions('limits.resume', named, { name })
    const { of } = checkOptions('limits.resume', t.object({ of: t.optional(t.name) }), options)
    const verdict = await resumeLimit(this.db, name, { of })
    if (verdict && !verdict.ended && of === undefined) throw severalPauses('limits.resume', verdict.before)
    return verdict?.ended !== undefined
  }

  /**
   * Lists all limits by name, with the holders of their slots.
   * @param options `keys`: also those of single values (`limitBy`), which exist while they are used, paused or set. Default: without them
   */
  async list(options: { readonly keys?: boolean } = {}): Promise<readonly Limit[]> {
    const { keys } = checkOptions('limits.list', t.object({ keys: t.withDefault(t.flag, false) }), options)
    return (await readLimits(this.db, keys ? undefined : 'shared')).limits
  }

  /**
   * Removes a limit: documents that need it wait from then on. One that lifecycles declare, or of a key, goes back to what they declare. While slots
   * are in use it stays, with no slot free.
   * @returns true if there was one
   */
  async remove(name: string): Promise<boolean> {
    checkOptions('limits.remove', named, { name })
    return removeLimit(this.db, name)
  }
}

/** @throws InvalidOptions */
function rateOf(text: string): Rate {
  const rate = rateFrom(text)
  if (rate) return rate
  throw new InvalidOptions('limits.set', [`rate: expected ${RATE}, got '${text.slice(0, 100)}'`])
}

/** A rate for people: `100 in 1 min`. */
export const rateText = ({ starts, perMs }: Rate): string => `${starts} in ${formatMs(perMs)}`
