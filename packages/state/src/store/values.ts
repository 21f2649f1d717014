import { randomUUID } from 'node:crypto'
import { type Duration, InvalidOptions } from 'phaselock'
import { aDuration, aFunction, checked, type Reads } from '../options.js'
import { sleep } from '../time.js'
import type { Backend, Condition, Stored } from './backend.js'
import { decode, type Encoded, encode } from './codec.js'
import { StoreUnavailable, UpdateContended } from './errors.js'
import { keyOf } from './key.js'
import type { Layer } from './layer.js'
import type { Loads } from './loads.js'
import type { StoreParts } from './parts.js'
import type { Entry, GetOrLoadOptions, LoadContext, ReadOptions, SharedValues, WriteOptions } from './types.js'

const MOST_PARTS = 1_000
const UPDATE_WITHIN_MS = 5_000
const LONGEST_PAUSE_MS = 200

const anything: Reads<unknown> = (value) => value
const toRead = { otherwise: anything }
const toWrite = { ttl: aDuration() }
const toDelete = { version: anything as Reads<string | undefined> }
const toLoad = {
  ttl: aDuration(),
  lockWait: aDuration('1d'),
  lockAtMostFor: aDuration('1d'),
  staleFor: aDuration(),
  isFresh: aFunction<(value: never) => boolean>(),
}

/** The settings of a prefix. */
export interface ValuesSettings {
  readonly prefix: string
  readonly environment: string
  readonly ttlMs: number | undefined
  readonly layer: Layer | undefined
}

/** The values under one prefix. */
export class Values<V> implements SharedValues<V> {
  readonly prefix: string
  readonly environment: string
  private readonly head: string
  private readonly backend: Backend
  /** The last change of each key that one is going on for: those of this process don't compete. */
  private readonly changing = new Map<string, Promise<unknown>>()

  constructor(
    private readonly parts: StoreParts,
    private readonly loads: Loads,
    private readonly settings: ValuesSettings,
  ) {
    this.prefix = settings.prefix
    this.environment = settings.environment
    this.head = `${settings.prefix}:${settings.environment}:`
    this.backend = parts.backend
  }

  async get(part: string, options?: ReadOptions<V>): Promise<V | undefined> {
    if (options) checked('get', toRead, options)
    const key = keyOf(this.head, part)
    return await orOtherwise(options, async () => {
      const stored = await this.read(key)
      return stored && (decode(key, stored.encoded) as V)
    })
  }

  async getMany(
    parts: readonly string[],
    options?: ReadOptions<ReadonlyMap<string, V>>,
  ): Promise<ReadonlyMap<string, V>> {
    if (options) checked('getMany', toRead, options)
    if (!Array.isArray(parts) || parts.length > MOST_PARTS)
      throw new InvalidOptions('getMany', [
        `expected a list of at most ${MOST_PARTS} parts, got ${parts?.length ?? typeof parts}`,
      ])
    const byKey = new Map(parts.map((part) => [keyOf(this.head, part), part]))
    if (byKey.size === 0) return new Map()
    const found = await orOtherwise(options, async () => {
      const keys = [...byKey.keys()]
      const action = () => `get ${keys.length} values under '${this.head}'`
      const stored = await this.parts.guard.ask(action, () => this.backend.readMany(keys))
      return new Map([...stored].map(([key, { encoded }]) => [byKey.get(key)!, decode(key, encoded) as V]))
    })
    return found ?? new Map()
  }

  async entry(part: string): Promise<Entry<V> | undefined> {
    const key = keyOf(this.head, part)
    const stored = await this.readStore(key, true)
    return stored && { value: decode(key, stored.encoded) as V, version: stored.version, leftMs: stored.leftMs }
  }

  async set(part: string, value: V, options?: WriteOptions): Promise<string> {
    const ttlMs = this.ttlOf('set', options)
    const key = keyOf(this.head, part)
    const version = newVersion()
    await this.write(key, encode(key, value), { version, ttlMs })
    return version
  }

  async delete(part: string, options?: { readonly version?: string | undefined }): Promise<boolean> {
    if (options) checked('delete', toDelete, options)
    const key = keyOf(this.head, part)
    const remove = () => this.backend.delete(key, options?.version)
    return await this.changed(key, () => this.parts.guard.ask(() => `delete '${key}'`, remove))
  }

  async compareAndSet(
    part: string,
    version: string | null,
    value: V,
    options?: WriteOptions,
  ): Promise<string | undefined> {
    const ttlMs = this.ttlOf('compareAndSet', options)
    const key = keyOf(this.head, part)
    return await this.swap(key, version, encode(key, value), ttlMs)
  }

  async update(
    part: string,
    change: (value: V | undefined) => V | undefined | Promise<V | undefined>,
    options?: WriteOptions,
  ): Promise<V | undefined> {
    const ttlMs = this.ttlOf('update', options)
    const key = keyOf(this.head, part)
    const before = this.changing.get(key)
    const done = (async () => {
      await before?.catch(() => undefined)
      return await this.changeNow(key, change, ttlMs)
    })()
    this.changing.set(key, done)
    try {
      return await done
    } finally {
      if (this.changing.get(key) === done) this.changing.delete(key)
    }
  }

  async getOrLoad(
    part: string,
    load: (context: LoadContext) => V | Promise<V>,
    options?: GetOrLoadOptions<V>,
  ): Promise<V> {
    const key = keyOf(this.head, part)
    if (typeof load !== 'function')
      throw new InvalidOptions('getOrLoad', [`load: expected a function that returns the value, got a ${typeof load}`])
    const {
      lockWait = 5_000,
      lockAtMostFor = 30_000,
      staleFor,
      isFresh,
      ...read
    } = checked('getOrLoad', toLoad, options)
    let ttlMs = read.ttl ?? this.settings.ttlMs
    const keepFor = (ttl: Duration) => {
      ttlMs = aDuration()(ttl, 'keepFor')
    }
    const encoded = await this.loads.get({
      key,
      load: async (context) => encode(key, await load({ ...context, keepFor })),
      isFresh: (stored) => isFresh === undefined || isFresh(decode(key, stored) as never),
      look: () => this.read(key, true),
      lookAgain: () => this.readStore(key, true),
      store: (loaded, fence, seen) => this.storeLoaded(key, loaded, fence, seen, ttlMs),
      ...{ lockWaitMs: lockWait, lockAtMostForMs: lockAtMostFor, staleForMs: staleFor },
      // Known when it has loaded: see keepFor.
      get ttlMs() {
        return ttlMs
      },
    })
    return decode(key, encoded) as V
  }

  private async changeNow(
    key: string,
    change: (value: V | undefined) => V | undefined | Promise<V | undefined>,
    ttlMs: number | undefined,
  ): Promise<V | undefined> {
    const startedMs = this.parts.clock.monotonicMs()
    for (let attempts = 1; ; attempts += 1) {
      const stored = await this.readStore(key, false)
      const value = await change(stored && (decode(key, stored.encoded) as V))
      if (value === undefined) return stored && (decode(key, stored.encoded) as V)
      const encoded = encode(key, value)
      if (await this.swap(key, stored?.version ?? null, encoded, ttlMs)) return decode(key, encoded) as V
      if (this.parts.clock.monotonicMs() - startedMs >= UPDATE_WITHIN_MS) throw new UpdateContended(key, attempts)
      await sleep(Math.random() * Math.min(LONGEST_PAUSE_MS, 2 ** attempts))
    }
  }

  /** Reads from the layer, if there is one, else from the store. */
  private async read(key: string, withLeft = false): Promise<Stored | undefined> {
    const { layer } = this.settings
    if (!layer) return await this.readStore(key, withLeft)
    const kept = layer.get(key)
    return kept === null ? await layer.read(key, () => this.readStore(key, true)) : kept
  }

  private readStore(key: string, withLeft: boolean): Promise<Stored | undefined> {
    return this.parts.guard.ask(
      () => `get '${key}'`,
      () => this.backend.read(key, withLeft),
    )
  }

  private async swap(
    key: string,
    version: string | null,
    encoded: Encoded,
    ttlMs: number | undefined,
  ): Promise<string | undefined> {
    const condition = version === null ? { absent: true } : { version }
    const next = newVersion()
    return (await this.write(key, encoded, { version: next, ttlMs }, condition)) ? next : undefined
  }

  /** Stores what was loaded under a lock, unless another has written since the value was seen, other than under an earlier lock. */
  private async storeLoaded(
    key: string,
    encoded: Encoded,
    fence: number,
    seen: string | undefined,
    ttlMs: number | undefined,
  ): Promise<boolean> {
    const condition = { absent: true, fenceBelow: fence, ...(seen !== undefined && { version: seen }) }
    return await this.write(key, encoded, { version: newVersion(), ttlMs, fence }, condition, true)
  }

  private async write(
    key: string,
    encoded: Encoded,
    { version, ttlMs, fence = 0 }: { version: string; ttlMs: number | undefined; fence?: number },
    condition?: Condition,
    rings = false,
  ): Promise<boolean> {
    const write = { encoded, version, ttlMs, fence }
    const store = () => this.backend.write(key, write, condition)
    return await this.changed(key, () => this.parts.guard.ask(() => `set '${key}'`, store), rings)
  }

  /** After a write, even one whose answer is missing: this process serves nothing older, and rings for the others. */
  private async changed<T>(key: string, write: () => Promise<T>, rings = false): Promise<T> {
    this.parts.used()
    try {
      return await write()
    } finally {
      this.settings.layer?.forget(key)
      this.loads.written(key)
      if (rings || this.settings.layer) this.parts.bell?.ring(this.prefix, key)
    }
  }

  private ttlOf(called: string, options: WriteOptions | undefined): number | undefined {
    return options === undefined ? this.settings.ttlMs : (checked(called, toWrite, options).ttl ?? this.settings.ttlMs)
  }
}

const newVersion = (): string => randomUUID()

async function orOtherwise<T>(
  options: ReadOptions<T> | undefined,
  read: () => Promise<T | undefined>,
): Promise<T | undefined> {
  try {
    return await read()
  } catch (error) {
    if (error instanceof StoreUnavailable && options && 'otherwise' in options) return options.otherwise
    throw error
  }
}
