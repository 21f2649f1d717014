import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { median } from '../statistics.mjs'
import { killedHolder, pausedHolder, serverRestart, throughput } from './scenes.mjs'
import { startServers } from './servers.mjs'

/**
 * `crashes`: the server whose end could lose a lock. Batches are of the size that Phaselock uses; `...OneByOne` is what
 * most people write first, and behaves like its batches in a crash. `scenes`: which are taken, all unless given; `quickShare`:
 * the slow ones get fewer documents in a quick run.
 */
const CONTESTANTS = [
  { name: 'phaselock', module: 'phaselock', crashes: 'mongo' },
  { name: 'skipLocked', module: 'skip-locked', crashes: 'postgres', batch: 500, lanes: 2 },
  { name: 'skipLockedOneByOne', module: 'skip-locked', crashes: 'postgres', batch: 1, lanes: 16, scenes: ['claims'] },
  { name: 'versionColumn', module: 'version-column', crashes: 'postgres', batch: 500, lanes: 2 },
  {
    name: 'versionColumnOneByOne',
    module: 'version-column',
    crashes: 'postgres',
    batch: 500,
    lanes: 16,
    claimEach: true,
    quickShare: 0.1,
    scenes: ['claims'],
  },
  { name: 'redisLock', module: 'redis-lock', crashes: 'redis', lanes: 32, quickShare: 0.1 },
  {
    name: 'redisLockSnapshots',
    module: 'redis-lock',
    crashes: 'redisSnapshots',
    redis: 'redisSnapshots',
    lanes: 32,
    scenes: ['restart'],
  },
]

const SIZES = {
  quick: { quick: true, documents: 6_000, rounds: 1, leaseMs: 3_000, restart: { documents: 200, workMs: 800 } },
  full: { documents: 20_000, rounds: 3, leaseMs: 30_000, restart: { documents: 1_000, workMs: 800 } },
}
/** A restart is about what is lost, not about how long a lease is: short ones, so that what waits for one ends soon. */
const RESTART_LEASE_MS = 5_000

/** The same claim, work and release by Phaselock and by what else is used for it: docs/compare/locks-measured.md. */
export async function run(_server, { quick, documents, rounds, progress }) {
  const sizes = { ...(quick ? SIZES.quick : SIZES.full), ...(documents && { documents }), ...(rounds && { rounds }) }
  const folder = await mkdtemp(join(tmpdir(), 'phaselock-ledgers-'))
  let servers
  try {
    servers = await startServers(progress)
    return await compared({ servers, folder }, sizes, progress)
  } finally {
    await servers?.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

async function compared(stage, sizes, progress) {
  const present = CONTESTANTS.filter(({ crashes }) => stage.servers.addresses[crashes])
  const inScene = (scene) => present.filter(({ scenes }) => scenes === undefined || scenes.includes(scene))
  const claims = await claimsInTurn(inScene('claims'), stage, sizes, progress)

  progress(`a holder is killed, and one is paused: leases of ${sizes.leaseMs / 1_000} s`)
  const held = inScene('holder')
  const [killed, paused] = await Promise.all([
    byName(held, (contestant) => killedHolder(contestant, stage, sizes.leaseMs)),
    byName(held, (contestant) => pausedHolder(contestant, stage, sizes.leaseMs)),
  ])

  const restarted = {}
  for (const contestant of inScene('restart')) {
    progress(`its server is killed and started again: ${contestant.name}`)
    restarted[contestant.name] = await serverRestart(contestant, stage, {
      ...sizes.restart,
      leaseMs: RESTART_LEASE_MS,
    })
  }
  const results = present.map(({ name }) => ({
    name,
    ...claims[name],
    ...killed[name],
    ...paused[name],
    ...(restarted[name] ? { serverRestart: restarted[name] } : {}),
  }))
  for (const result of results) progress(JSON.stringify(result))
  const ours = results.find(({ name }) => name === 'phaselock')
  return {
    claims: results,
    documents: sizes.documents,
    rounds: sizes.rounds,
    leaseSeconds: sizes.leaseMs / 1_000,
    wrong:
      ours.lost +
      ours.repeated +
      ours.overlapping +
      ours.serverRestart.lost +
      ours.serverRestart.overlapping +
      (ours.lateWrite ? 1 : 0),
  }
}

/** @returns name -> the median of claims in a second, and what went wrong in all rounds */
async function claimsInTurn(contestants, stage, { quick, documents, rounds }, progress) {
  const figures = Object.fromEntries(contestants.map(({ name }) => [name, []]))
  for (let round = 1; round <= rounds; round += 1) {
    for (let i = 0; i < contestants.length; i += 1) {
      const contestant = contestants[(i + round) % contestants.length]
      const count = quick ? Math.round(documents * (contestant.quickShare ?? 1)) : documents
      const figure = await throughput(contestant, stage, count)
      figures[contestant.name].push(figure)
      progress(`round ${round}/${rounds}  ${contestant.name}: ${figure.perSecond.toLocaleString('en-US')}/s`)
    }
  }
  const sum = (all, field) => all.reduce((total, each) => total + each[field], 0)
  return Object.fromEntries(
    Object.entries(figures).map(([name, all]) => [
      name,
      {
        claimsPerSecond: Math.round(median(all.map(({ perSecond }) => perSecond))),
        lost: sum(all, 'lost'),
        repeated: sum(all, 'repeated'),
        overlapping: sum(all, 'overlapping'),
      },
    ]),
  )
}

const byName = async (contestants, take) =>
  Object.fromEntries(
    await Promise.all(contestants.map(async (contestant) => [contestant.name, await take(contestant)])),
  )
