const MEGABYTE = 1024 * 1024

/** A value that is larger than a store may keep. Nothing was stored. */
export class ValueTooLarge extends Error {
  override readonly name = 'ValueTooLarge'
  constructor(
    /** The whole key: `prefix:environment:part`. */
    readonly key: string,
    /** The size in bytes of the value in its stored form. */
    readonly bytes: number,
    /** The largest size in bytes. */
    readonly limit: number,
  ) {
    super(
      `'${key}': expected a value of at most ${limit / MEGABYTE} MB, got ${(bytes / MEGABYTE).toFixed(1)} MB; store it in parts, or keep it elsewhere and store where it is`,
    )
  }
}

/** A value that wouldn't come back as it went in. Nothing was stored. */
export class InvalidValue extends Error {
  override readonly name = 'InvalidValue'
  constructor(
    /** The whole key: `prefix:environment:part`. */
    readonly key: string,
    /** The place in the value, such as `value.items[3].price`. */
    readonly path: string,
    /** The problem with that place, and the value to store in its stead. */
    readonly problem: string,
  ) {
    super(`'${key}': ${path}: ${problem}`)
  }
}

/** A key that can't be used. */
export class InvalidKey extends Error {
  override readonly name = 'InvalidKey'
  constructor(
    /** The expectation, the finding and the remedy: the same as `message`. */
    readonly problem: string,
  ) {
    super(problem)
  }
}

/**
 * The store's server didn't answer within 5 s, or refused. A value that was read isn't known. A write may or may not have been done: it is safe to
 * do it again.
 */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable'
  constructor(
    /** The store's kind: `mongodb`, `redis` or `memory`. */
    readonly store: string,
    /** The action it was to perform, such as `get 'scenario:default:s1'`. */
    readonly action: string,
    cause: unknown,
  ) {
    const got = cause instanceof Error ? cause.message || cause.name : String(cause)
    super(`expected the ${store} store to ${action}, got: ${got}; try again when the server is back`, { cause })
  }
}

/** `update` found another version each time that it tried: others write this key without a pause. Nothing was stored. */
export class UpdateContended extends Error {
  override readonly name = 'UpdateContended'
  constructor(
    /** The whole key: `prefix:environment:part`. */
    readonly key: string,
    /** The number of attempts. */
    readonly attempts: number,
  ) {
    super(
      `'${key}': expected one of ${attempts} attempts to find the value unchanged, but others wrote it each time; spread what they write over several keys`,
    )
  }
}

/** `getOrLoad` waited for `lockWait`, and the process that loads the value hasn't stored it yet. */
export class StillLoading extends Error {
  override readonly name = 'StillLoading'
  constructor(
    /** The whole key: `prefix:environment:part`. */
    readonly key: string,
    /** The holder of the key's lock, which begins with the name of its process; undefined if it isn't known. */
    readonly heldBy: string | undefined,
    /** The time that was waited, in milliseconds. */
    readonly waitedMs: number,
  ) {
    super(
      `'${key}': expected ${heldBy ?? 'the process that loads it'} to store a value within ${waitedMs} ms; try again, or give it a longer lockWait`,
    )
  }
}

/** `getOrLoad` was called for a key by the function that loads this key: it would wait for itself. */
export class LoadsItself extends Error {
  override readonly name = 'LoadsItself'
  constructor(
    /** The whole key: `prefix:environment:part`. */
    readonly key: string,
  ) {
    super(
      `'${key}': expected its load function to return a value, but it asks for this key with getOrLoad; read it with get`,
    )
  }
}

/** The stored value can't be read, because another program or a person wrote it. */
export class DamagedValue extends Error {
  override readonly name = 'DamagedValue'
  constructor(
    /** The whole key: `prefix:environment:part`. */
    readonly key: string,
    cause: unknown,
  ) {
    const got = cause instanceof Error ? cause.message : String(cause)
    super(`'${key}': expected a value that this package has stored, got: ${got}; set it anew, or delete it`, { cause })
  }
}
