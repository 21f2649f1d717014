import { createHash } from 'node:crypto'
import type { Backend, Condition, Stored, Write } from './backend.js'
import type { Encoded } from './codec.js'
import type { Send } from './redis-client.js'

/**
 * KEYS: the key. ARGV: the new text, ttl in ms or '', the new version, '1' if it may be absent or '', the version that it may have or '', the fence
 * below which it may be or ''. A text of another form counts as absent. The new version stands there already if the first answer was lost.
 */
const WRITE = `
local version, fence = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%d+) ')
if version == ARGV[3] then return 1 end
local may
if version then
  may = version == ARGV[5] or (ARGV[6] ~= '' and tonumber(fence) > 0 and tonumber(fence) < tonumber(ARGV[6]))
else
  may = ARGV[4] == '1'
end
if not may then return 0 end
if ARGV[2] == '' then redis.call('SET', KEYS[1], ARGV[1]) else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return 1
`

/** KEYS: the key. The text and the time that this text has left: two commands might see two values. */
const READ = `return { redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]) }`

/** KEYS: the key. ARGV: the version that it has to have, or ''. */
const DELETE = `
local version = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%d+) ')
if not version or (ARGV[1] ~= '' and version ~= ARGV[1]) then return 0 end
return redis.call('DEL', KEYS[1])
`

const DIGESTS = new Map(
  [WRITE, READ, DELETE].map((script) => [script, createHash('sha1').update(script).digest('hex')]),
)

/** Values in Redis, a text `<version> <fence> <value>` each, with Redis's own expiry. */
export class RedisBackend implements Backend {
  readonly kind = 'redis'

  constructor(private readonly send: Send) {}

  async read(key: string, withLeft: boolean): Promise<Stored | undefined> {
    if (!withLeft) return storedIn(await this.send(['GET', key]))
    const [text, left] = (await this.run(READ, key, [])) as [unknown, unknown]
    return storedIn(text, Number(left))
  }

  /** One command for each key, because one command can't read keys of several slots; a client pipelines them. */
  async readMany(keys: readonly string[]): Promise<ReadonlyMap<string, Stored>> {
    const texts = await Promise.all(keys.map((key) => this.send(['GET', key])))
    return new Map(
      keys.flatMap((key, i): [string, Stored][] => {
        const stored = storedIn(texts[i])
        return stored ? [[key, stored]] : []
      }),
    )
  }

  async write(key: string, write: Write, condition?: Condition): Promise<boolean> {
    const { encoded, version, ttlMs, fence } = write
    const text = `${version} ${fence} ${textOf(encoded)}`
    const ttl = ttlMs === undefined ? '' : String(ttlMs)
    if (!condition) {
      await this.send(['SET', key, text, ...(ttl === '' ? [] : ['PX', ttl])])
      return true
    }
    const { absent, version: seen = '', fenceBelow } = condition
    const args = [text, ttl, version, absent ? '1' : '', seen, fenceBelow === undefined ? '' : String(fenceBelow)]
    return Number(await this.run(WRITE, key, args)) === 1
  }

  async delete(key: string, version = ''): Promise<boolean> {
    return Number(await this.run(DELETE, key, [version])) === 1
  }

  private async run(script: string, key: string, args: string[]): Promise<unknown> {
    try {
      return await this.send(['EVALSHA', DIGESTS.get(script)!, '1', key, ...args])
    } catch (error) {
      if (!/NOSCRIPT/.test((error as Error).message)) throw error
      return await this.send(['EVAL', script, '1', key, ...args])
    }
  }
}

/** JSON as it is; BSON as `b` and base64, which no text of JSON begins with. */
const textOf = (encoded: Encoded): string =>
  typeof encoded === 'string'
    ? encoded
    : `b${Buffer.from(encoded.buffer, encoded.byteOffset, encoded.byteLength).toString('base64')}`

function storedIn(answer: unknown, left = -1): Stored | undefined {
  if (answer == null) return undefined
  const text = String(answer)
  const endOfVersion = text.indexOf(' ')
  const endOfFence = text.indexOf(' ', endOfVersion + 1)
  if (endOfVersion < 1 || !/^\d+$/.test(text.slice(endOfVersion + 1, Math.max(0, endOfFence)))) return undefined
  const value = text.slice(endOfFence + 1)
  return {
    encoded: value.startsWith('b') ? Buffer.from(value.slice(1), 'base64') : value,
    version: text.slice(0, endOfVersion),
    // -1: it has no expiry.
    leftMs: left === -1 ? undefined : Math.max(0, left),
  }
}
