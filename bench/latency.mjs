import { setTimeout as sleep } from 'node:timers/promises'
import { ProbeCrew, until } from './probe-crew.mjs'
import { percentile, rounded } from './statistics.mjs'

/** How many documents show what can be done: about a second's worth, 5,000 at most. */
const MOST_IN_BURST = 5_000
const WARM_UP = 1_000
const LOAD = 0.5
const LOAD_SETTLES_MS = 500
const OVERLOAD = 1.3
/** Rings are coalesced below 50 ms; ticks come once a second, and probes of all its parts are alike. */
const EVERY_MS = { doorbell: 110, tick: 53 }
const SLEEPERS = { fromMs: 3_000, everyMs: 150 }
const QUICK = { doorbell: 45, tick: 90, sleepers: 30 }
const FULL = { doorbell: 120, tick: 120, sleepers: 60 }

/**
 * How soon a document begins: by the doorbell (the owner's API) and by the tick (a plain insert), on an idle system and
 * under half of the load that it can take, with one replica and with three; and how soon one that comes due is stepped
 * while more new documents come than can be done.
 */
export async function run(server, { quick, progress }) {
  const size = quick ? QUICK : FULL
  const one = await measure(server, 1, { size, progress, loaded: true })
  const three = await measure(server, 3, { size, progress, loaded: !quick })
  const { wrong, ...figures } = one
  const { wrong: wrongOfThree, ...threeReplicas } = three
  return { ...figures, threeReplicas, wrong: wrong + wrongOfThree }
}

async function measure(server, replicas, { size, progress, loaded }) {
  const crew = await ProbeCrew.start(server, replicas)
  const say = (what) => progress(`${replicas === 1 ? 'one replica' : `${replicas} replicas`}: ${what}`)
  try {
    say('idle')
    const idle = await pickUps(crew, size)
    const load = loaded ? await underLoad(crew, size, say) : {}
    const overload = loaded && replicas === 1 ? await underOverload(crew, size, load.capacity, say) : {}
    return { ...named(idle), ...load.figures, ...overload.figures, wrong: overload.wrong ?? 0 }
  } finally {
    await crew.stop()
  }
}

const pickUps = async (crew, size) => ({
  doorbell: await pickUpsBy('doorbell', crew, size),
  tick: await pickUpsBy('tick', crew, size),
})

const pickUpsBy = (by, crew, size) => crew.pickUps({ by, count: size[by], everyMs: EVERY_MS[by] })

/** The same while a load of so many documents a second comes in the same way. */
async function pickUpsBeside(by, perSecond, crew, size) {
  await crew.loader.load({ by, perSecond })
  await sleep(LOAD_SETTLES_MS)
  const found = await pickUpsBy(by, crew, size)
  const { inserted } = await crew.loader.stop()
  return { found, inserted }
}

/** Pick-ups, and the way of outcomes to the server, while the system does half of what it can. */
async function underLoad(crew, size, say) {
  const cold = await crew.capacity(WARM_UP)
  const capacity = await crew.capacity(Math.min(MOST_IN_BURST, Math.max(WARM_UP, Math.round(cold))))
  say(`under ${Math.round(LOAD * 100)} % of ${Math.round(capacity)} documents a second`)
  const before = crew.handled
  const { inserted: insertedBefore } = await crew.loader.stop()
  const { found: doorbell } = await pickUpsBeside('doorbell', capacity * LOAD, crew, size)
  const { found: tick, inserted } = await pickUpsBeside('tick', capacity * LOAD, crew, size)
  const left = inserted - insertedBefore - (crew.handled - before)
  const recordMs = crew.recordMs.splice(0)
  return {
    capacity,
    figures: {
      ...named({ doorbell, tick }, 'UnderLoad'),
      recordP95Ms: recordMs.length > 0 ? rounded(percentile(recordMs, 0.95), 1) : null,
      recordP50Ms: recordMs.length > 0 ? rounded(percentile(recordMs, 0.5), 1) : null,
      loadPerSecond: Math.round(capacity * LOAD),
      /** Documents of the load still to be done at its end: more than a second's worth, and it was no load of half. */
      loadLeft: Math.max(0, left),
    },
  }
}

/** Documents that come due by waiting, and by a crash of their holder, while more new ones come than can be done. */
async function underOverload(crew, size, capacity, say) {
  await until(() => crew.recordMs.splice(0).length === 0, 'the load to be done')
  const count = size.sleepers
  await crew.prober.sleepers({ count, ...SLEEPERS })
  say(`under ${Math.round(OVERLOAD * 100)} % of it`)
  await crew.loader.load({ by: 'doorbell', perSecond: capacity * OVERLOAD, ahead: capacity })
  const overMs = SLEEPERS.fromMs + count * SLEEPERS.everyMs
  await sleep(overMs)
  const { inserted } = await crew.loader.stop()
  const overloaded = inserted - crew.handled > capacity / 4
  await until(() => crew.woken.length >= 2 * count, 'each sleeper to be stepped', 60_000).catch(() => undefined)
  const late = (kind) => crew.woken.filter(({ woken }) => woken === kind).map(({ lateMs }) => Math.max(0, lateMs))
  return {
    wrong: 2 * count - crew.woken.length,
    figures: {
      wokenUnderLoadP95Ms: Math.round(percentile([...late('wait'), ...late('crash')], 0.95)),
      woken: { wait: spread(late('wait')), crash: spread(late('crash')) },
      overloaded,
    },
  }
}

const spread = (values) => ({
  p50Ms: Math.round(percentile(values, 0.5)),
  p95Ms: Math.round(percentile(values, 0.95)),
  mostMs: Math.round(Math.max(...values)),
})

/** `doorbellP50Ms`, `tickP95MsUnderLoad` and so on. */
const named = (found, suffix = '') =>
  Object.fromEntries(
    Object.entries(found).flatMap(([by, values]) =>
      [50, 95, 99].map((p) => [`${by}P${p}Ms${suffix}`, rounded(percentile(values, p / 100), 1)]),
    ),
  )
