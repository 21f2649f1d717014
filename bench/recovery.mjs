import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ensureLockIndexes } from '../dist/lock/index.js'
import { until } from './probe-crew.mjs'
import { monotonicMs } from './probes.mjs'
import { CONCURRENCY, FATES, LOCK_TIMEOUT_S, recovering } from './recoveries.mjs'
import { startReplica, total } from './replica.mjs'
import { rounded } from './statistics.mjs'

/** More than a victim begins at once, and no more than it claims at once: a quarter above its concurrency. */
const DOCUMENTS = CONCURRENCY + 4
/** Beyond the lease, renewed at most a third of it before the pause. */
const PAUSE_MS = (LOCK_TIMEOUT_S + 2) * 1_000
const LAST_WRITES_MS = 3_000

/**
 * Three replicas that hold documents: one is killed with SIGKILL, one paused with SIGSTOP beyond its leases, after which it
 * goes on, and one stopped with SIGTERM beside a fourth that has nothing. When has the fourth begun all that they held; is there
 * one effect of each document in the world outside, if that refuses older fences; does a late outcome change anything?
 */
export async function run(server, { progress }) {
  const folder = await mkdtemp(join(tmpdir(), 'phaselock-bench-ledger-'))
  const ledger = join(folder, 'ledger')
  const db = server.database()
  const start = (name, fates, victim) =>
    startReplica({
      uri: server.uri,
      database: db.databaseName,
      lifecycles: 'recovering.mjs',
      name,
      http: true,
      env: { BENCH_FATES: fates.join(','), BENCH_LEDGER: ledger, BENCH_VICTIM: victim ? 'yes' : 'no' },
    })
  const replicas = []
  try {
    for (const fate of FATES) await prepare(db, fate)
    const victims = {}
    const atMs = {}
    const strike = async (fate, how) => {
      await until(async () => (await begun(ledger, fate)).length >= CONCURRENCY, `${fate} to begin`)
      atMs[fate] = monotonicMs()
      victims[fate][how]()
    }
    // Each as soon as it holds its documents: what the survivor waits for then is nearly a whole lease.
    for (const [fate, how] of Object.entries({ killed: 'kill', paused: 'pause', stopped: undefined })) {
      victims[fate] = await start(fate, [fate], true)
      replicas.push(victims[fate])
      if (how) await strike(fate, how)
    }
    progress('SIGKILL, SIGSTOP')
    const survivor = await start('survivor', FATES, false)
    replicas.push(survivor)
    progress('SIGTERM')
    const notBegun = (await held(db, 'stopped')) - CONCURRENCY
    await strike('stopped', 'stop')
    return await judge({ ledger, db, victims, survivor, atMs, notBegun, progress })
  } finally {
    for (const replica of replicas) replica.kill()
    await Promise.all(replicas.map((replica) => replica.ended))
    await rm(folder, { recursive: true, force: true })
  }
}

const held = (db, fate) =>
  db.collection(recovering(fate).model.collection).countDocuments({ lockedBy: { $type: 'string' } })

async function prepare(db, fate) {
  const collection = db.collection(recovering(fate).model.collection)
  await ensureLockIndexes(collection)
  await collection.insertMany(Array.from({ length: DOCUMENTS }, () => ({ phase: 'Creating' })))
}

async function judge({ ledger, db, victims, survivor, atMs, notBegun, progress }) {
  // Handed over: what the stopped one had claimed and not begun. What it had begun may end now.
  const handedOver = async () => (await taken(ledger, 'stopped')).filter((entry) => entry.atMs >= atMs.stopped)
  await until(async () => (await handedOver()).length >= notBegun, 'SIGTERM to hand over')
  const handoverSeconds = notBegun > 0 ? rounded(lastSeconds(await handedOver(), atMs.stopped), 3) : null
  victims.stopped.tell({ goOn: true })
  await victims.stopped.ended
  const stoppedSeconds = (monotonicMs() - atMs.stopped) / 1_000
  progress(`handed over after ${handoverSeconds} s; the others' leases last ${LOCK_TIMEOUT_S} s`)

  const recovered = async (fate) => (await taken(ledger, fate)).length >= DOCUMENTS
  await until(() => recovered('killed'), 'the killed one to be replaced', 60_000)
  await until(() => recovered('paused'), 'the paused one to be replaced', 60_000)
  await sleep(Math.max(0, atMs.paused + PAUSE_MS - monotonicMs()))
  victims.paused.resume()
  victims.paused.tell({ goOn: true })
  await until(async () => (await lateEffects(ledger)).length >= CONCURRENCY, 'the paused one to go on')
  const leasesLost = async () => total(await victims.paused.metrics(), 'phaselock_lease_lost_total')
  await until(async () => (await leasesLost()) >= CONCURRENCY, 'its late outcomes', LAST_WRITES_MS).catch(
    () => undefined,
  )
  const pausedLeasesLost = await leasesLost()
  await Promise.all([victims.paused.end(), survivor.end()])
  const effects = judgeEffects(await entries(ledger))
  const records = await Promise.all(FATES.map((fate) => wrongRecords(db, fate)))
  return {
    recoverySeconds: rounded(lastSeconds(await taken(ledger, 'killed'), atMs.killed), 2),
    handoverSeconds,
    stoppedSeconds: rounded(stoppedSeconds, 2),
    pausedTakenSeconds: rounded(lastSeconds(await taken(ledger, 'paused'), atMs.paused), 2),
    /** Late outcomes that changed nothing: all of them, unless `wrong` says otherwise. */
    pausedRefused: effects.refused,
    pausedLeasesLost,
    duplicates: effects.duplicates,
    lost: effects.lost,
    documents: FATES.length * DOCUMENTS,
    lockTimeoutSeconds: LOCK_TIMEOUT_S,
    wrong: effects.duplicates + effects.lost + records.reduce((sum, count) => sum + count, 0),
  }
}

async function entries(ledger) {
  const text = await readFile(ledger, 'utf8').catch(() => '')
  return text
    .split('\n')
    .filter((line) => line.endsWith('}'))
    .map((line) => JSON.parse(line))
}

const begun = async (ledger, fate) =>
  (await entries(ledger)).filter((entry) => entry.what === 'begin' && entry.fate === fate && entry.victim)

/** What the survivor has begun. */
const taken = async (ledger, fate) =>
  (await entries(ledger)).filter((entry) => entry.what === 'begin' && entry.fate === fate && !entry.victim)

const lateEffects = async (ledger) =>
  (await entries(ledger)).filter((entry) => entry.what === 'effect' && entry.fate === 'paused' && entry.victim)

const lastSeconds = (found, sinceMs) => (Math.max(...found.map(({ atMs }) => atMs)) - sinceMs) / 1_000

/** The world outside takes an effect only under a fence above those that it has seen of its document. */
function judgeEffects(found) {
  const seen = new Map()
  let duplicates = 0
  let refused = 0
  for (const { document, fence } of found.filter(({ what }) => what === 'effect').sort((a, b) => a.atMs - b.atMs)) {
    const before = seen.get(document)
    if (before !== undefined && fence <= before) refused += 1
    else if (before !== undefined) duplicates += 1
    if (before === undefined || fence > before) seen.set(document, fence)
  }
  return { duplicates, refused, lost: FATES.length * DOCUMENTS - seen.size }
}

/**
 * Documents whose record is not one outcome, under one token, by who had to record it: of what a killed or a paused one
 * held, the survivor.
 */
async function wrongRecords(db, fate) {
  const documents = await db.collection(recovering(fate).model.collection).find().toArray()
  const isRight = ({ phase, by, lockedBy, progress }) =>
    phase === 'Created' &&
    lockedBy === undefined &&
    progress.history.filter(({ outcome }) => outcome === 'moveTo').length === 1 &&
    (fate === 'stopped' || by === 'survivor')
  const notRight = documents.filter((document) => !isRight(document)).length
  const handedOver = documents.filter(({ by }) => by === 'survivor').length
  return notRight + (fate === 'stopped' && handedOver !== DOCUMENTS - CONCURRENCY ? 1 : 0)
}
