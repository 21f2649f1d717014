import { Redis } from 'ioredis'
import { durableOn } from '../dist/database/index.js'
import { SharedStore } from '../packages/state/dist/index.js'
import { startRedis } from '../tools/servers/redis.mjs'
import { alternating } from './rounds.mjs'
import { median, rounded } from './statistics.mjs'

const LANES = 16
const KEYS = 512
const TTL_MS = 3_600_000
const VALUE = {
  user: 'ann',
  at: '2026-11-21T06:00:00Z',
  steps: Array.from({ length: 20 }, (_, i) => ({ n: i, text: `step ${i} of it` })),
}
const SIZES = { quick: { ms: 400, rounds: 3 }, full: { ms: 2_000, rounds: 7 } }

/**
 * Values of 1 kB that all replicas share: reads and writes in a second by sixteen callers, beside the plain driver with a value in a document, or in a
 * text of JSON, on the same server.
 */
export async function run(server, { quick, rounds: asked, progress }) {
  const { ms, ...sizes } = quick ? SIZES.quick : SIZES.full
  const rounds = asked ?? sizes.rounds
  const redisServer = await startRedis()
  const redis = new Redis(redisServer.url)
  const db = server.database()
  const places = { mongodb: { client: db, plain: plainMongo(db) }, redis: { client: redis, plain: plainRedis(redis) } }
  const figures = {}
  const wrong = { values: 0 }
  try {
    for (const [kind, { client, plain }] of Object.entries(places)) {
      const store = new SharedStore({ client })
      const ours = store.of('bench', { ttl: '1h' })
      for (let n = 0; n < KEYS; n += 1) await Promise.all([ours.set(`k${n}`, VALUE), plain.set(`k${n}`, VALUE)])
      const check = async (get) => {
        const { steps } = await get
        if (steps.length !== VALUE.steps.length) wrong.values += 1
      }
      const contestants = {
        getOurs: (key) => check(ours.get(key)),
        getPlain: (key) => check(plain.get(key)),
        setOurs: (key) => ours.set(key, VALUE),
        setPlain: (key) => plain.set(key, VALUE),
      }
      const timed = Object.fromEntries(
        Object.entries(contestants).map(([name, one]) => [name, (round) => perSecond(one, round === 0 ? ms / 4 : ms)]),
      )
      const taken = await alternating(timed, rounds, (line) => progress(`${kind}  ${line}`))
      figures[kind] = { get: beside(taken.getOurs, taken.getPlain), set: beside(taken.setOurs, taken.setPlain) }
      await store.close()
    }
    const shares = Object.values(figures).flatMap(({ get, set }) => [get.plainShare, set.plainShare])
    return { ...figures, statePlainShare: Math.min(...shares), lanes: LANES, rounds, wrong: wrong.values }
  } finally {
    redis.disconnect()
    await redisServer.stop()
  }
}

/** The share is the median of those of the rounds: what else the machine does falls on both. */
const beside = (ours, plain) => ({
  perSecond: Math.round(median(ours)),
  plainPerSecond: Math.round(median(plain)),
  plainShare: rounded(median(ours.map((value, i) => value / plain[i])), 3),
})

async function perSecond(one, ms) {
  const started = performance.now()
  let done = 0
  await Promise.all(
    Array.from({ length: LANES }, async (_, lane) => {
      for (let n = lane; performance.now() - started < ms; n += LANES) {
        await one(`k${n % KEYS}`)
        done += 1
      }
    }),
  )
  return (done * 1_000) / (performance.now() - started)
}

function plainMongo(db) {
  const values = db.collection('plain', { writeConcern: durableOn(db.client) })
  return {
    get: async (_id) => (await values.findOne({ _id })).value,
    set: (_id, value) =>
      values.replaceOne({ _id }, { value, expiresAt: new Date(Date.now() + TTL_MS) }, { upsert: true }),
  }
}

const plainRedis = (redis) => ({
  get: async (key) => JSON.parse(await redis.get(`plain:${key}`)),
  set: (key, value) => redis.set(`plain:${key}`, JSON.stringify(value), 'PX', TTL_MS),
})
