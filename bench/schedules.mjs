import { setTimeout as sleep } from 'node:timers/promises'
import { protocolClient } from '../dist/database/index.js'
import { Replica } from '../dist/index.js'
import { noticeEdits } from '../dist/schedules/edit-watch.js'
import { Schedules } from '../dist/schedules/index.js'
import { CommandLog } from './command-log.mjs'
import { rounded } from './statistics.mjs'

const SIZES = { quick: 20_000, full: 1_000_000 }
const FEW = 10
const INSERT_LANES = 4
const INSERT_BATCH = 5_000
const TICKS_MEASURED = 20
const DAY_MS = 86_400_000
const WATCH_CHUNK = 1_000
/** Schedules that come due one after the other while a replica runs. */
const DUE = { quick: 100, full: 600 }
const DUE_WITHIN_MS = { quick: 5_000, full: 20_000 }
/** Schedules that are due all at once. */
const AT_ONCE = { quick: 500, full: 3_000 }

/**
 * A million schedules of which none is due: what a tick costs beside a few; how late those that come due among them start; how
 * many runs a second one replica makes of a backlog, each under its named lock.
 */
export async function run(server, { quick, progress }) {
  const size = quick ? 'quick' : 'full'
  const client = await protocolClient(server.uri, { monitorCommands: true }).connect()
  const db = client.db(server.database().databaseName)
  const started = new Map()
  const task = (_args, { schedule, scheduledFor }) => void started.set(schedule, Date.now() - scheduledFor.getTime())
  const schedules = new Schedules({ db, name: 'bench', tasks: { task } })
  const replica = new Replica({ db, lifecycles: schedules.lifecycles, name: 'bench' })
  try {
    await replica.prepare()
    const log = new CommandLog(client)
    progress(`${FEW} schedules, none of them due`)
    await insertFar(db, 0, FEW)
    const few = await idleTicks(replica, log)
    progress(`${SIZES[size].toLocaleString('en-US')} schedules, none of them due`)
    await insertFar(db, FEW, SIZES[size])
    const many = await idleTicks(replica, log)
    const watchMs = await watched(db, log)
    progress(`${DUE[size]} of them come due within ${DUE_WITHIN_MS[size] / 1_000} s`)
    const late = await lateness(db, replica, started, size)
    progress(`${AT_ONCE[size]} are due at once`)
    const backlog = await atOnce(db, schedules, size)
    return {
      schedules: SIZES[size],
      idleTickMs: many.ms,
      idleTickMsRatio: rounded(many.ms / few.ms, 2),
      idleTickCommands: many.commands,
      idleTickCommandsOfFew: few.commands,
      /** The look for edits made in the database, each second by one replica: 1,000 schedules. */
      watchMs,
      startedLateMs: late,
      runsPerSecond: backlog.runsPerSecond,
      wrong: backlog.wrong + (await wrongRuns(db, DUE[size] + AT_ONCE[size])),
    }
  } finally {
    await replica.stop()
    await client.close()
  }
}

/** A schedule as it stands once it was planned: it sleeps until it is due, by lockedAt. */
function planned(i, at) {
  const known = { task: 'task', at, isActive: true }
  return {
    _id: `s${i}`,
    phase: 'Active',
    ...known,
    known,
    nextRunAt: at,
    lockedAt: new Date(at.getTime() - 30_000),
    createdAt: new Date(),
  }
}

async function insertFar(db, from, to) {
  let next = from
  const lane = async () => {
    while (next < to) {
      const first = next
      next = Math.min(to, first + INSERT_BATCH)
      const far = (i) => new Date(Date.now() + DAY_MS + (i % 1_000_000) * 1_000)
      const documents = Array.from({ length: next - first }, (_, i) => planned(first + i, far(first + i)))
      await db.collection('schedules').insertMany(documents, { ordered: false })
    }
  }
  await Promise.all(Array.from({ length: INSERT_LANES }, lane))
}

async function idleTicks(replica, log) {
  await replica.runOnce()
  log.take()
  for (let i = 0; i < TICKS_MEASURED; i += 1) await replica.tick()
  await replica.idle()
  const commands = log.take()
  return {
    ms: rounded(commands.reduce((sum, { ms }) => sum + ms, 0) / TICKS_MEASURED, 2),
    commands: rounded(commands.length / TICKS_MEASURED, 2),
  }
}

async function watched(db, log) {
  log.take()
  let position = null
  for (let i = 0; i < TICKS_MEASURED; i += 1) {
    position = (await noticeEdits(db.collection('schedules'), position, WATCH_CHUNK)).last
  }
  return rounded(log.take().reduce((sum, { ms }) => sum + ms, 0) / TICKS_MEASURED, 2)
}

/** By one replica that ticks once a second: each is due at a moment of its own. */
async function lateness(db, replica, started, size) {
  const begin = Date.now() + 3_000
  const step = DUE_WITHIN_MS[size] / DUE[size]
  const due = Array.from({ length: DUE[size] }, (_, i) => planned(`due${i}`, new Date(Math.round(begin + i * step))))
  await db.collection('schedules').insertMany(due)
  await replica.start()
  await sleep(begin + DUE_WITHIN_MS[size] - Date.now())
  await until(() => started.size >= DUE[size])
  const ms = [...started.values()].sort((a, b) => a - b)
  const at = (share) => ms[Math.min(ms.length - 1, Math.floor(ms.length * share))]
  return { p50: at(0.5), p95: at(0.95), max: ms.at(-1) }
}

async function atOnce(db, schedules, size) {
  const before = await over(db)
  const at = new Date(Date.now() - 1_000)
  const due = Array.from({ length: AT_ONCE[size] }, (_, i) => planned(`once${i}`, at))
  const began = performance.now()
  await db.collection('schedules').insertMany(due)
  await until(async () => (await over(db)) >= before + AT_ONCE[size])
  const seconds = (performance.now() - began) / 1_000
  const unfinished = (await schedules.list({ phase: 'Active', limit: 10 })).filter(({ _id }) => _id.startsWith('sonce'))
  return { runsPerSecond: rounded(AT_ONCE[size] / seconds), wrong: unfinished.length }
}

const over = (db) => db.collection('runs').countDocuments({ phase: 'Completed' })

async function wrongRuns(db, expected) {
  const completed = await over(db)
  return Math.abs((await db.collection('runs').countDocuments()) - completed) + Math.abs(expected - completed)
}

async function until(isTrue, everyMs = 100, withinMs = 300_000) {
  const end = Date.now() + withinMs
  while (!(await isTrue())) {
    if (Date.now() > end) throw new Error(`expected the benchmark to get on within ${withinMs / 1_000} s, it did not`)
    await sleep(everyMs)
  }
}
