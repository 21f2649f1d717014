/**
 * Another process with the same values (with the built packages): opens them as its argument says, and obeys one JSON line at a time on its standard
 * input, answering each with one.
 * `traffic`: writes keys of its own and reads those of the other; `load`: many callers for one value; `layered`: reads one value again and again.
 */
import { appendFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { MongoClient } from 'mongodb'
import { SharedStore } from '../../../packages/state/dist/index.js'

const { name, url, layer, dropsRings } = JSON.parse(process.argv[2])
const isRedis = url.startsWith('redis')
const connection = isRedis ? new Redis(url, { maxRetriesPerRequest: 1 }) : await new MongoClient(url).connect()
if (isRedis) connection.on('error', () => undefined)
const store = new SharedStore({ client: isRedis ? connection : connection.db() })
if (dropsRings) store.parts.bell.ring = () => undefined
const values = store.of('shared', { layer })
/** The same clock in all processes of a machine. */
const now = () => Number(process.hrtime.bigint()) / 1e6
/** Divides the number of keys, so that each key has one writer. */
const LANES = 16

const DO = {
  /** Each key has one writer, which counts up. @returns when each number was acknowledged, and what was read when */
  async traffic({ other, writes, keys }) {
    const acknowledged = {}
    const reads = []
    const lane = async (first) => {
      for (let n = first; n < writes; n += LANES) {
        const key = n % keys
        const count = Math.floor(n / keys)
        await values.set(`${name}${key}`, count)
        acknowledged[key] ??= []
        acknowledged[key][count] = now()
        const [asked, at] = [Math.floor(Math.random() * keys), now()]
        reads.push([asked, at, (await values.get(`${other}${asked}`)) ?? -1])
      }
    }
    await Promise.all(Array.from({ length: LANES }, (_, i) => lane(i)))
    return { acknowledged, reads }
  },
  async load({ key, callers, log, ms, options }) {
    const load = async () => {
      appendFileSync(log, `${JSON.stringify({ name, begins: now() })}\n`)
      say({ loading: name })
      await pause(ms)
      appendFileSync(log, `${JSON.stringify({ name, ends: now() })}\n`)
      return { by: name }
    }
    const one = async () => ({ value: await values.getOrLoad(key, load, options), at: now() })
    return await Promise.all(Array.from({ length: callers }, one))
  },
  hearing: () => store.parts.hearing.isHearing,
  get: ({ key }) => values.get(key).then((value) => value ?? null),
  set: ({ key, value }) => values.set(key, value).then(() => now()),
}

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`)
say({ ready: store.kind })
for await (const line of createInterface({ input: process.stdin })) {
  const { op, ...rest } = JSON.parse(line)
  Promise.resolve()
    .then(() => DO[op](rest))
    .then(
      (answer) => say({ op, answer }),
      (error) => say({ op, error: `${error.name}: ${error.message}` }),
    )
}
