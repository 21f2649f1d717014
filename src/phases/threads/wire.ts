import type { BSON } from 'mongodb'
import { withSet } from '../errors/storable.js'

type Fields = Record<string, unknown>
/** Of BSON's library, what is used here: the thread loads only that and not the driver (18 ms instead of 93, measured). */
export type Bson = Pick<typeof BSON, 'serialize' | 'deserialize' | 'Double' | 'Int32'>

/**
 * Documents on their way between threads, as BSON: ids, dates, Long, Decimal128 and the like arrive as themselves. A structured
 * clone makes plain objects of them, and Extended JSON takes five times as long (3 KB there and back: 81 us against 380, measured).
 */
export class Wire {
  constructor(private readonly bson: Bson) {}

  encode(fields: Fields): Uint8Array {
    // As the driver stores them: undefined becomes null.
    return this.bson.serialize(fields, { ignoreUndefined: false })
  }

  /**
   * The owner's fields that a thread's handler wants stored. What the engine checks too is checked here first, as what can't be
   * stored can't be sent either.
   * @throws InvalidOutcome
   */
  encodeSet(set: unknown): Uint8Array {
    return withSet(set, (fields) => {
      const removed = Object.keys(fields).filter((name) => fields[name] === undefined)
      return this.encode({ fields, removed })
    })
  }

  /** A document, as the driver would have read it; a Long stays one. */
  document(bytes: Uint8Array): Fields {
    return this.bson.deserialize(bytes, { promoteLongs: false })
  }

  /** Fields that are to be stored, as `encodeSet` sent them: each with the very type that it would have been stored with where it was made. */
  fields(bytes: Uint8Array): Fields {
    const { fields, removed } = this.plain(this.bson.deserialize(bytes, { promoteValues: false })) as {
      fields: Fields
      removed: readonly string[]
    }
    return Object.fromEntries(
      Object.entries(fields).map(([name, value]) => [name, removed.includes(name) ? undefined : value]),
    )
  }

  /** Numbers come back from their wrappers, but for a Double that would become an integer. */
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
