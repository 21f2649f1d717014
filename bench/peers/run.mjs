import { readFileSync } from 'node:fs'
import { median, rounded } from '../statistics.mjs'
import { installPeers } from './install.mjs'

/** Alphabetical, ours last: the table and the chart show them so. */
const NAMES = ['agenda', 'bullmq', 'graphile-worker', 'pg-boss', 'phaselock']

/** A quick run doesn't wait for what a killed worker leaves: the peers take from half a minute to for ever. */
const SIZES = {
  quick: { quick: true, seconds: 0.5, limitSeconds: 2, rounds: 2, idleSeconds: 5, pickupSeconds: 5 },
  /** About ten minutes on a quiet machine. */
  full: {
    quick: false,
    seconds: 2,
    limitSeconds: 6,
    rounds: 3,
    idleSeconds: 20,
    pickupSeconds: 30,
    recoverySeconds: 75,
  },
}

/** Phaselock beside what users would pick instead. What each figure means and how fair it is: bench/README.md. */
export async function run(server, { quick, rounds, progress }) {
  installPeers(progress)
  const { startServers } = await import('./servers.mjs')
  const sizes = { ...(quick ? SIZES.quick : SIZES.full), ...(rounds ? { rounds } : {}) }
  const servers = await startServers(server.uri, progress)
  const workers = []
  try {
    return await compared({ server, servers, sizes, progress }, workers)
  } finally {
    for (const worker of workers) await worker.kill()
    await servers.stop()
  }
}

async function compared({ server, servers, sizes, progress }, workers) {
  const [{ startWorker }, { quiet }, { throughput, keyOf }, { crash }, { newTally }] = await Promise.all(
    ['worker', 'quiet', 'throughput', 'crash', 'backlog'].map((file) => import(`./${file}.mjs`)),
  )
  const peers = []
  for (const name of NAMES) {
    const peer = await import(`./${name}.mjs`)
    if (servers.addresses[peer.server]) peers.push({ name, peer })
  }
  const entries = peers.flatMap(({ name, peer }) =>
    Object.keys(peer.SETTINGS).map((setting) => {
      const worker = startWorker(name, setting)
      workers.push(worker)
      return { name, setting, peer, worker, tally: newTally() }
    }),
  )
  const { addresses } = servers

  progress('idle: commands, memory, pick-up')
  const calm = await quiet(
    entries.filter(({ name, setting }) => isQuiet(name, setting, sizes)),
    servers,
    sizes,
  )
  const engine = { wrong: 0, last: {} }
  const others = entries.filter(({ name }) => name !== 'phaselock')
  const figures = await throughput(others, { server, addresses, sizes, engine, progress })
  let recovered = []
  if (sizes.recoverySeconds) {
    progress(`kill -9: waiting up to ${sizes.recoverySeconds} s`)
    recovered = await crash(peers, addresses, sizes.recoverySeconds)
  }

  const rows = entries.map((entry) => rowOf(entry, { calm, figures, recovered, peers, engine, keyOf }))
  for (const line of table(rows)) progress(line)
  return {
    peers: rows,
    ratios: ratios(figures),
    recovery: sizes.recoverySeconds
      ? `seconds, null: not again within ${sizes.recoverySeconds} s; defaults only`
      : 'null: not taken in a quick run, it takes from half a minute to for ever',
    servers: { mongo: server.description, ...servers.versions, ...DURABILITY },
    rounds: sizes.rounds,
    wrong: engine.wrong,
  }
}

/** What an answered write has survived, on each server. */
const DURABILITY = {
  durability: {
    agenda: 'the driver’s defaults',
    bullmq: 'append-only file, flushed once a second; bestFsyncAlways: before each reply',
    'graphile-worker': 'fsync, synchronous_commit on',
    'pg-boss': 'fsync, synchronous_commit on',
    phaselock: '{ w: 1, j: true } (a server alone)',
  },
}

/** The best settings change idle load and pick-up only where they poll or listen otherwise: taken in full runs, and for pg-boss. */
const isQuiet = (name, setting, { quick }) =>
  setting === 'defaults' || (setting === 'best' && (!quick || name === 'pg-boss'))

function rowOf({ name, setting, tally, worker }, { calm, figures, recovered, peers, engine, keyOf }) {
  const ours = name === 'phaselock'
  const key = ours ? 'phaselock' : keyOf({ name, setting })
  const of = (kind, at = key) => (figures[kind][at] ? Math.round(median(figures[kind][at]) * 10) / 10 : null)
  return {
    name,
    setting,
    version: versionOf(name),
    noopJobsPerSecond: of('noop'),
    insertToDoneJobsPerSecond: of('insertToDone'),
    stepsPerSecond: of('steps'),
    ...(ours ? { bareStepsPerSecond: of('steps', 'phaselock bare') } : {}),
    ...calmOf(calm, worker),
    recoverySeconds: setting === 'defaults' ? (recovered[peers.findIndex((peer) => peer.name === name)] ?? null) : null,
    rssLoadedMb: Math.max(tally.rssMb, ours ? (engine.last.noop?.rssMb ?? 0) : 0) || null,
    missing: tally.missing,
    repeated: tally.repeated,
    lateRounds: tally.late,
  }
}

const calmOf = (calm, worker) => {
  const {
    idleCommandsPerSecond = null,
    rssIdleMb = null,
    pickupP50Ms = null,
    pickupP95Ms = null,
    pickups = 0,
  } = calm.find((figures) => figures.worker === worker) ?? {}
  return { pickupP50Ms, pickupP95Ms, pickups, idleCommandsPerSecond, rssIdleMb }
}

/**
 * Ours to theirs with their best settings, the median over rounds: like against like. Rounds in which they got nothing
 * done in time are left out.
 */
function ratios({ noop, insertToDone, steps }) {
  const times = (ours, theirs) => {
    const known = ours.map((figure, i) => figure / theirs[i]).filter(Number.isFinite)
    return known.length > 0 ? rounded(median(known), 2) : null
  }
  const each = (prefix, ours, figures) =>
    Object.entries(figures)
      .filter(([key]) => !key.startsWith('phaselock') && !key.endsWith(' defaults'))
      .map(([key, theirs]) => [`${prefix}${nameOf(key)}`, times(ours, theirs)])
  return Object.fromEntries([
    ...each('stepsTimes', steps.phaselock, steps),
    ...each('bareStepsTimes', steps['phaselock bare'], steps),
    ...each('noopTimes', noop.phaselock, noop),
    ...each('insertToDoneTimes', insertToDone.phaselock, insertToDone),
  ])
}

/** 'pg-boss bestOneByOne' -> 'PgBossOneByOne' */
const nameOf = (key) => {
  const [name, setting] = key.split(' ')
  const camel = name.replace(/(^|-)(\w)/g, (_, _dash, letter) => letter.toUpperCase())
  return `${camel}${setting.replace('best', '')}`
}

/** The rows for people: one line a peer and setting. */
function table(rows) {
  const columns = Object.keys(rows.at(-1)).filter((column) => column !== 'bareStepsPerSecond')
  const cells = [
    columns.map((column) => column.replace(/PerSecond$/, '/s')),
    ...rows.map((row) => columns.map((column) => `${row[column] ?? '-'}`)),
  ]
  const widths = columns.map((_, i) => Math.max(...cells.map((line) => line[i].length)))
  return cells.map((line) =>
    line.map((cell, i) => (i < 3 ? cell.padEnd(widths[i]) : cell.padStart(widths[i]))).join('  '),
  )
}

function versionOf(name) {
  if (name === 'phaselock')
    return JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')).version
  const url = new URL('./package.json', import.meta.url)
  return JSON.parse(readFileSync(url, 'utf8')).dependencies[name]
}
