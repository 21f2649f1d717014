import { setImmediate as next } from 'node:timers/promises'
import { LockExecutor, openLockProvider } from '../dist/locks/index.js'
import { startPostgres } from '../tools/servers/postgres.mjs'
import { startRedis } from '../tools/servers/redis.mjs'
import { lockFloors } from './lock-floors.mjs'
import { alternating } from './rounds.mjs'
import { median, rounded } from './statistics.mjs'

const LANES = 16
const FIGHT = { names: 4, workers: 8 }
const SIZES = { quick: { ms: 400, rounds: 1, fights: 200 }, full: { ms: 2_000, rounds: 5, fights: 2_000 } }

/**
 * Named locks, each provider on its real server: acquire and release in a second, by one caller and by sixteen at once (on
 * names of their own), beside a program written by hand for just that; then a fight for few names, in which nobody may be
 * within while another is.
 */
export async function run(server, { quick, rounds: asked, progress }) {
  const { ms, fights, ...sizes } = quick ? SIZES.quick : SIZES.full
  const rounds = asked ?? sizes.rounds
  const [postgres, redis] = await Promise.all([startPostgres(), startRedis()])
  const floors = await lockFloors({ db: server.database(), postgres: postgres.url, redis: redis.url })
  try {
    const providers = {}
    for (const [kind, options, fallback] of [
      ['mongodb', { provider: 'mongodb' }, server.database()],
      ['postgres', { url: postgres.url }],
      ['redis', { url: redis.url }],
      ['memory', { provider: 'memory' }],
    ]) {
      const open = () => openLockProvider({ ...options, env: {} }, fallback)
      providers[kind] = await figuresOf(kind, open, floors[kind], { ms, rounds, fights, progress })
    }
    const all = Object.values(providers)
    const overlap = all.reduce((sum, one) => sum + one.overlap, 0)
    const fencesBackwards = all.reduce((sum, one) => sum + one.fencesBackwards, 0)
    return { ...providers, overlap, fencesBackwards, lanes: LANES, rounds, wrong: overlap + fencesBackwards }
  } finally {
    await floors.close()
    await Promise.all([postgres.stop(), redis.stop()])
  }
}

async function figuresOf(kind, open, floor, { ms, rounds, fights, progress }) {
  const provider = await open()
  const ours = async (name) => {
    const lock = await provider.lock({ name, lockAtMostFor: '1m' })
    if (!lock || !(await lock.unlock())) throw new Error(`expected ${kind} to grant and to free '${name}', it did not`)
  }
  try {
    const contestants = Object.fromEntries(
      [1, LANES].flatMap((lanes) => [
        [`ours${lanes}`, (round) => perSecond(ours, lanes, round === 0 ? ms / 4 : ms)],
        [`floor${lanes}`, (round) => perSecond(floor, lanes, round === 0 ? ms / 4 : ms)],
      ]),
    )
    const figures = await alternating(contestants, rounds, (line) => progress(`${kind}  ${line}`))
    const shares = (lanes) => figures[`ours${lanes}`].map((value, i) => value / figures[`floor${lanes}`][i])
    const fought = await fight(await Promise.all(Array.from({ length: FIGHT.workers }, open)), fights)
    progress(`${kind}  fight: ${JSON.stringify(fought)}`)
    return {
      perSecond: Math.round(median(figures[`ours${LANES}`])),
      floorPerSecond: Math.round(median(figures[`floor${LANES}`])),
      floorShare: rounded(median(shares(LANES)), 3),
      aloneMs: rounded(1_000 / median(figures.ours1), 3),
      floorAloneMs: rounded(1_000 / median(figures.floor1), 3),
      ...fought,
    }
  } finally {
    await provider.close()
  }
}

/** Acquisitions with their releases in a second: `lanes` callers, each with a name of its own. */
async function perSecond(acquireAndRelease, lanes, ms) {
  const started = performance.now()
  let done = 0
  await Promise.all(
    Array.from({ length: lanes }, async (_, lane) => {
      while (performance.now() - started < ms) {
        await acquireAndRelease(`lane ${lane}`)
        done += 1
      }
    }),
  )
  return (done * 1_000) / (performance.now() - started)
}

/** Everybody wants the same few names: who is within is noted, and which fence came. */
async function fight(providers, times) {
  const within = new Map()
  const fences = new Map()
  const counts = { acquisitions: 0, refusals: 0, overlap: 0, fencesBackwards: 0 }
  const task = (name) => async (held) => {
    if (within.has(name)) counts.overlap += 1
    if (held.fence <= (fences.get(name) ?? 0)) counts.fencesBackwards += 1
    within.set(name, held.lockedBy)
    fences.set(name, held.fence)
    await next()
    if (within.get(name) !== held.lockedBy) counts.overlap += 1
    within.delete(name)
  }
  try {
    await Promise.all(
      providers.map(async (provider, worker) => {
        const executor = new LockExecutor(provider)
        for (let i = worker; counts.acquisitions < times; i += 1) {
          const name = `fought for ${i % FIGHT.names}`
          const { executed } = await executor.executeWithLock(task(name), { name, lockAtMostFor: '10m' })
          counts[executed ? 'acquisitions' : 'refusals'] += 1
          // Locks in memory are refused without any turn of the event loop.
          if (!executed) await next()
        }
      }),
    )
    return counts
  } finally {
    await Promise.all(providers.map((provider) => provider.close()))
  }
}
