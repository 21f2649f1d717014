import { setTimeout as sleep } from 'node:timers/promises'
import { ensureLockIndexes } from '../dist/lock/index.js'
import { countingProxy } from './counting-proxy.mjs'
import { startReplica } from './replica.mjs'
import { median, rounded } from './statistics.mjs'
import { TEN } from './ten-lifecycles.mjs'

/** What a start does besides (checks of query plans, connections) is over by then; in a full run the first duties, after 30 s, are, too. */
const SETTLES_MS = { quick: 5_000, full: 45_000 }
/** Of each lifecycle: documents that rest, and documents that sleep for an hour. */
const DOCUMENTS = 500
const HOUR_MS = 3_600_000
/** The driver's own talk about the connection, which is the same for every program. */
const NOT_COUNTED = ['hello', 'isMaster', 'ismaster']

/**
 * One replica on a database with ten lifecycles, at the same time three on another one, and one with all switched off that can be, none of
 * which has anything to do: every command of each that passes on the wire, and what they take of memory.
 */
export async function run(server, { quick, progress }) {
  const seconds = quick ? 20 : 300
  const settlesMs = quick ? SETTLES_MS.quick : SETTLES_MS.full
  const alone = await crew(server, 1)
  const three = await crew(server, 3)
  const unseen = await crew(server, 1, ['--beat-every', '0s', '--sweep-every', '0s'])
  try {
    progress(`5 idle replicas for ${settlesMs / 1_000 + seconds} s`)
    await sleep(settlesMs)
    const replicas = [...alone.replicas, ...three.replicas, ...unseen.replicas]
    const before = await readings(server, replicas)
    await sleep(seconds * 1_000)
    const after = await readings(server, replicas)
    const rssMb = await Promise.all(replicas.map(({ replica }) => replica.rssMb()))
    const took = (after.atMs - before.atMs) / 1_000
    const rates = replicas.map((_, i) => (after.sums[i] - before.sums[i]) / took)
    const [aloneRate, ...threeRates] = rates
    const unseenRate = threeRates.pop()
    return {
      idleCommandsPerSecond: rounded(aloneRate, 3),
      idleCommandsPerSecondOfThree: rounded(threeRates.reduce((sum, rate) => sum + rate, 0) / 3, 3),
      /** Without what can be switched off: its document for people, and the sweeps. */
      idleCommandsPerSecondUnseen: rounded(unseenRate, 3),
      /** The same by the server's own counters, all five replicas together, for each. */
      idleCommandsPerSecondByServer: rounded((after.byServer - before.byServer - 1) / took / replicas.length, 3),
      commands: perSecond(before.byName[0], after.byName[0], took),
      rssIdleMb: rounded(rssMb[0]),
      rssIdleMbMedian: rounded(median(rssMb)),
      lifecycles: TEN.length,
      seconds: rounded(took, 1),
      wrong: (await worked(alone.db)) + (await worked(three.db)) + (await worked(unseen.db)),
    }
  } finally {
    await Promise.all([alone, three, unseen].map((one) => one.close()))
  }
}

async function crew(server, size, flags = []) {
  const db = server.database()
  for (const { collection } of TEN) {
    await ensureLockIndexes(db.collection(collection))
    const inAnHour = new Date(Date.now() + HOUR_MS)
    await db
      .collection(collection)
      .insertMany([
        ...Array.from({ length: DOCUMENTS }, () => ({ phase: 'Ready', state: 'Running', lockedAt: new Date(0) })),
        ...Array.from({ length: DOCUMENTS }, () => ({ phase: 'Creating', state: 'Running', lockedAt: inAnHour })),
      ])
  }
  const replicas = await Promise.all(
    Array.from({ length: size }, async (_, i) => {
      const proxy = await countingProxy(server.uri)
      const options = { uri: proxy.uri, database: db.databaseName, lifecycles: 'ten.mjs', name: `idle-${i}`, flags }
      return { proxy, replica: await startReplica(options) }
    }),
  )
  const close = async () => {
    await Promise.all(replicas.map(({ replica }) => replica.end()))
    for (const { proxy } of replicas) proxy.close()
  }
  return { db, replicas, close }
}

async function readings(server, replicas) {
  const byServer = await server.commandsSoFar(NOT_COUNTED)
  const byName = replicas.map(({ proxy }) => new Map(proxy.counts))
  return { atMs: performance.now(), byServer, byName, sums: byName.map(counted) }
}

const counted = (counts) =>
  [...counts].reduce((sum, [name, count]) => sum + (NOT_COUNTED.includes(name) ? 0 : count), 0)

const perSecond = (before, after, seconds) =>
  Object.fromEntries(
    [...after]
      .filter(([name, count]) => !NOT_COUNTED.includes(name) && count > (before.get(name) ?? 0))
      .map(([name, count]) => [name, rounded((count - (before.get(name) ?? 0)) / seconds, 3)]),
  )

/** Documents that somebody has touched though nothing was due. */
async function worked(db) {
  const counts = await Promise.all(
    TEN.map(({ collection }) => db.collection(collection).countDocuments({ fence: { $exists: true } })),
  )
  return counts.reduce((sum, count) => sum + count, 0)
}
