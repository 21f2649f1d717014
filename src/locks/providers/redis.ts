import { createHash } from 'node:crypto'
import { isReleased, releasedToken } from '../acquisition.js'
import { bounded } from '../bounded.js'
import { InvalidLockProvider } from '../errors.js'
import type { LockRecord } from '../lock-provider.js'
import type { Granted, LockStore, Request } from '../lock-store.js'
import { EXTEND, FIND, FREE, RAISE, RELEASE, TAKE } from './redis-scripts.js'
import { keyBeside } from './redis-slot.js'

/** A client of `ioredis` or of `redis` (node-redis), recognized by the method used here. You connect and close it. */
export type RedisClient =
  | {
      /** The method of ioredis: sends one command. */
      call(command: string, ...args: string[]): Promise<unknown>
    }
  | {
      /** The method of node-redis: sends one command, named by the first argument. */
      sendCommand(args: string[]): Promise<unknown>
    }

export interface RedisStoreOptions {
  /** The first part of a key. Default ShedLock's own, 'job-lock'. */
  readonly prefix?: string | undefined
  /** The second part, for several environments on one server. Default ShedLock's own, 'default'. */
  readonly environment?: string | undefined
  readonly answerWithinMs?: number | undefined
  readonly onClose?: () => Promise<void>
}

const DAY_MS = 86_400_000
const SCAN_COUNT = '500'
const DIGESTS = new Map(
  [TAKE, FREE, EXTEND, RAISE, FIND, RELEASE].map((script) => [script, createHash('sha1').update(script).digest('hex')]),
)

/**
 * Locks in Redis under `prefix:environment:name`, stored as Java's ShedLock stores them: set if absent, with an expiry and a value
 * unique per acquisition; release and extend compare the value in a script. The fence's counter is in the same slot.
 * A free lock has no key. If Redis forgets a lock (a restart without persistence, a failover), it grants it again: docs/caveats.md.
 */
export class RedisLockStore implements LockStore {
  readonly kind = 'redis'
  private readonly send: (args: string[]) => Promise<unknown>
  private readonly keyPrefix: string

  constructor(
    client: RedisClient,
    private readonly options: RedisStoreOptions = {},
  ) {
    this.keyPrefix = `${options.prefix ?? 'job-lock'}:${options.environment ?? 'default'}:`
    this.send = senderOf(client)
  }

  async take({ name, token, lockAtMostForMs, reentrySuffix }: Request): Promise<Granted | undefined> {
    const args = [token, String(lockAtMostForMs), reentrySuffix ?? '', fenceKeptMs(lockAtMostForMs)]
    const answer = await this.run(TAKE, this.keysOf(name), args)
    if (answer === null) return undefined
    const [at, until, fence] = answer as [string, string, string]
    return { lockedAt: new Date(Number(at)), lockUntil: new Date(Number(until)), fence: Number(fence) }
  }

  /** Makes this acquisition's fence at least so high, for a lock on several servers. @returns false if it isn't held here */
  async raiseFence(name: string, token: string, fence: number, lockAtMostForMs: number): Promise<boolean> {
    const args = [token, String(fence), fenceKeptMs(lockAtMostForMs)]
    return Number(await this.run(RAISE, this.keysOf(name), args)) === 1
  }

  async free(name: string, token: string, atLeastMs: number): Promise<boolean> {
    const freed = await this.run(FREE, [this.keyOf(name)], [token, String(atLeastMs), releasedToken(token)])
    return Number(freed) === 1
  }

  async extend(name: string, token: string, atMostMs: number, atLeastMs: number): Promise<Date | undefined> {
    const args = [token, String(atMostMs), String(atLeastMs)]
    const until = await this.run(EXTEND, [this.keyOf(name)], args)
    return until === null ? undefined : new Date(Number(until))
  }

  async find(name: string): Promise<LockRecord | undefined> {
    return (await this.seen(name))?.record
  }

  /** Reads one key per command, because one command can't read keys of several slots; a client pipelines them. */
  async holders(names: readonly string[]): Promise<Map<string, string>> {
    const values = await Promise.all(names.map((name) => this.ask(['GET', this.keyOf(name)])))
    return new Map(
      names.flatMap((name, i) => (values[i] == null ? [] : [[name, holderIn(String(values[i])).lockedBy]])),
    )
  }

  /** Lists all keys under the prefix, one by one: for operators. A free lock has no key. */
  async list(): Promise<LockRecord[]> {
    const names = new Set<string>()
    const match = `${this.keyPrefix.replaceAll(/[\\*?[\]]/g, '\\$&')}*`
    let cursor = '0'
    do {
      const [next, keys] = (await this.ask(['SCAN', cursor, 'MATCH', match, 'COUNT', SCAN_COUNT])) as [string, string[]]
      for (const key of keys) names.add(String(key).slice(this.keyPrefix.length))
      cursor = String(next)
    } while (cursor !== '0')
    const found = await Promise.all([...names].map((name) => this.find(name)))
    return found.filter((record) => record !== undefined).sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  async release({ name, lockedBy }: LockRecord): Promise<boolean> {
    const seen = await this.seen(name)
    if (seen?.record.lockedBy !== lockedBy) return false
    return Number(await this.run(RELEASE, [this.keyOf(name)], [seen!.value])) === 1
  }

  async close(): Promise<void> {
    await this.options.onClose?.()
  }

  private async seen(name: string): Promise<{ value: string; record: LockRecord } | undefined> {
    const answer = await this.run(FIND, this.keysOf(name), [])
    if (answer === null) return undefined
    const [value, now, left, fence] = answer as [string, string, string, string | null | undefined]
    return { value, record: recordIn(name, value, Number(now) + Number(left), fence ?? undefined) }
  }

  private keyOf(name: string): string {
    return this.keyPrefix + name
  }

  private keysOf(name: string): [string, string] {
    const key = this.keyOf(name)
    return [key, keyBeside(key, 'fence')]
  }

  private async run(script: string, keys: string[], args: string[]): Promise<unknown> {
    const rest = [String(keys.length), ...keys, ...args]
    try {
      return await this.ask(['EVALSHA', DIGESTS.get(script)!, ...rest])
    } catch (error) {
      if (!/NOSCRIPT/.test((error as Error).message)) throw error
      return await this.ask(['EVAL', script, ...rest])
    }
  }

  private ask(args: string[]): Promise<unknown> {
    return bounded(this.send(args), this.options.answerWithinMs)
  }
}

/** If the counter is lost, only the clock keeps fences growing; the extra day covers clocks that step back. */
const fenceKeptMs = (lockAtMostForMs: number) => String(DAY_MS + lockAtMostForMs)

/** @throws InvalidLockProvider if it is a client of neither kind */
function senderOf(client: RedisClient): (args: string[]) => Promise<unknown> {
  if ('call' in client && typeof client.call === 'function')
    return ([command, ...args]) => client.call(command!, ...args)
  if ('sendCommand' in client && typeof client.sendCommand === 'function') return (args) => client.sendCommand(args)
  throw new InvalidLockProvider('client: expected a client of ioredis or redis, with call() or sendCommand()')
}

/** Parses our own value, or Java's `ADDED:2026-11-21T06:00:00.000Z@host:uuid`. */
function holderIn(value: string): { lockedBy: string; lockedAt: Date } {
  const [, ours, at] = /^(.*)@(\d+)$/s.exec(value) ?? []
  const [, since, theirs] = /^ADDED:([^@]*)@(.*)$/s.exec(value) ?? []
  const lockedAt = ours !== undefined ? new Date(Number(at)) : new Date(since ?? Number.NaN)
  return { lockedBy: ours ?? theirs ?? value, lockedAt }
}

function recordIn(name: string, value: string, untilMs: number, fence: string | undefined): LockRecord {
  const { lockedBy, lockedAt } = holderIn(value)
  return {
    name,
    lockedBy,
    lockedAt: Number.isNaN(lockedAt.getTime()) ? undefined : lockedAt,
    lockUntil: Number.isFinite(untilMs) ? new Date(untilMs) : undefined,
    fence: fence === undefined ? undefined : Number(fence),
    held: true,
    released: isReleased(lockedBy),
  }
}
