import type { BSON } from 'mongodb'
import { withSet } from '../errors/storable.js'

type Fields = Record<string, unknown>
/** The part of BSON's library that is used here: the thread loads only that and not the driver (18 ms instead of 93, measured). */
export type Bson = Pick<typeof BSON, 'serialize' | 'deserialize' | 'Double' | 'Int32'>

/**
 * Documents on their way between threads, as BSON: ids, dates, Long, Decimal128 and the like arrive as themselves. A structured clone makes plain
 * objects of them, and Extended JSON takes five times as long (3 KB there and back: 81 us against 380, measured).
 */
export class Wire {
  constructor(private readonly bson: Bson) {}

  encode(fields: Fields): Uint8Array {
    // As the driver stores them: undefined becomes null.
    return this.bson.serialize(fields, { ignoreUndefined: false })
  }

  /**
   * Encodes the owner's fields that a thread's handler stores. The engine checks them too, but they are checked here first, because values that can't
   * be stored can't be sent either.
   * @throws InvalidOutcome
   */
  encodeSet(set: unknown): Uint8Array {
    return withSet(set, (fields) => {
      const removed = Object.keys(fields).filter((name) => fields[name] === undefined)
      return this.encode({ fields, removed })
    })
  }

  /** Decodes a document as the driver would have read it; a Long stays one. */
  document(bytes: Uint8Array): Fields {
    return this.bson.deserialize(bytes, { promoteLongs: false })
  }

  /** Decodes fields to store, as `encodeSet` sent them: each with the very type that it would have been stored with in its own thread. */
  fields(bytes: Uint8Array): Fields {
    const { fields, removed } = this.plain(this.bson.deserialize(bytes, { promoteValues: false })) as {
      fields: Fields
      removed: readonly string[]
    }
    return Object.fromEntries(
      Object.entries(fields).map(([name, value]) => [name, removed.includes(name) ? undefined : value]),
    )
  }

  /** A value without the wrappers of numbers, except for a Double that would become an integer. */
  private plain(value: unknown): unknown {
    if (typeof value !== 'object' || value === null) return value
    if (value instanceof this.bson.Int32) return value.value
    if (value instanceof this.bson.Double) {
      return Number.isInteger(value.value) && !Object.is(value.value, -0) && (value.value | 0) === value.value
        ? value
        : value.value
    }
    if (Array.isArray(value)) return value.map((one) => this.plain(one))
    if (Object.getPrototypeOf(value) !== Object.prototype) return value
    // Not assigned: a field `__proto__` would become the object's prototype.
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, this.plain(inner)]))
  }
}
