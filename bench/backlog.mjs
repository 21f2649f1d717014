import { protocolClient } from '../dist/database/index.js'
import { Replica } from '../dist/index.js'
import { CommandLog, examined } from './command-log.mjs'
import { LIFECYCLES } from './lifecycles.mjs'
import { until } from './probe-crew.mjs'
import { rounded } from './statistics.mjs'
import { COLLECTION, prepareCollection } from './workload.mjs'

const SIZES = { quick: [1_000, 10_000, 100_000], full: [1_000, 100_000, 1_000_000] }
const DUE_BESIDE_SLEEPERS = 4_000
/** One due document of so many was held by a holder that has crashed; the others are new. */
const ONE_HAS_CRASHED = 10
const CLAIMS_MEASURED = 2_000
const TICKS_MEASURED = 20
const INSERT_LANES = 4
const INSERT_BATCH = 5_000
const HOUR_MS = 3_600_000

/**
 * What a claim costs beside 1,000, 100,000 and 1,000,000 documents (quick: 100,000 at most) that sleep, or that are due
 * like itself: index keys that the selection of candidates examines for each one that it returns, and time; and what a tick
 * costs that finds nothing due.
 */
export async function run(server, { quick, progress }) {
  const client = await protocolClient(server.uri, { monitorCommands: true }).connect()
  try {
    const bySize = {}
    for (const size of quick ? SIZES.quick : SIZES.full) {
      progress(`${size.toLocaleString('en-US')} sleeping`)
      const sleeping = await besideSleepers(server, client, size)
      progress(`${size.toLocaleString('en-US')} due`)
      const due = await besideDue(server, client, size)
      bySize[size] = { sleeping, due }
    }
    return figuresOf(bySize)
  } finally {
    await client.close()
  }
}

function figuresOf(bySize) {
  const sizes = Object.keys(bySize)
  const [least, most] = [bySize[sizes[0]], bySize[sizes.at(-1)]]
  const keys = Object.fromEntries(
    sizes.map((size) => [size, Math.max(bySize[size].sleeping.keysPerClaim, bySize[size].due.keysPerClaim)]),
  )
  const ratio = (figure) => rounded(figure(most) / figure(least), 2)
  return {
    keysPerClaim: { ...keys, worst: Math.max(...Object.values(keys)) },
    claimMsRatio: ratio(({ sleeping }) => sleeping.claimMsPerDocument),
    claimMsRatioDue: ratio(({ due }) => due.claimMsPerDocument),
    idleTickMsRatio: ratio(({ sleeping }) => sleeping.idleTickMs),
    idleTickCommands: most.sleeping.idleTickCommands,
    bySize,
    wrong: sizes.reduce((sum, size) => sum + bySize[size].sleeping.wrong, 0),
  }
}

async function besideSleepers(server, client, size) {
  const db = client.db(server.database().databaseName)
  await prepareCollection(db)
  const later = new Date(Date.now() + HOUR_MS)
  await insert(db, size, () => ({ phase: 'Creating', lockedAt: later }))
  const log = new CommandLog(client)
  const idle = await idleTicks(db, log)
  await insert(db, DUE_BESIDE_SLEEPERS, dueDocument)
  const claims = await claimSome(db, log)
  const wrong = await db.collection(COLLECTION).countDocuments({ lockedAt: later, fence: { $exists: true } })
  await db.dropDatabase()
  return { ...claims, ...idle, wrong }
}

async function besideDue(server, client, size) {
  const db = client.db(server.database().databaseName)
  await prepareCollection(db)
  // So many stay due while others are claimed.
  await insert(db, size + CLAIMS_MEASURED, dueDocument)
  const claims = await claimSome(db, new CommandLog(client))
  await db.dropDatabase()
  return claims
}

const longAgo = new Date(Date.now() - HOUR_MS)
const dueDocument = (i) =>
  i % ONE_HAS_CRASHED === 0
    ? { phase: 'Creating', lockedAt: longAgo, lockedBy: 'gone~000#1.1', fence: 1 }
    : { phase: 'Creating' }

async function insert(db, count, document) {
  let next = 0
  const lane = async () => {
    while (next < count) {
      const from = next
      next = Math.min(count, from + INSERT_BATCH)
      const documents = Array.from({ length: next - from }, (_, i) => document(from + i))
      await db.collection(COLLECTION).insertMany(documents, { ordered: false })
    }
  }
  await Promise.all(Array.from({ length: INSERT_LANES }, lane))
}

/** Ticks of a replica that finds nothing due. */
async function idleTicks(db, log) {
  const replica = new Replica({ db, lifecycles: [LIFECYCLES.noop], name: 'bench' })
  await replica.prepare()
  await replica.tick() // the first has some things to do only once
  log.take()
  for (let i = 0; i < TICKS_MEASURED; i += 1) await replica.tick()
  const commands = log.take()
  await replica.stop()
  return {
    idleTickMs: rounded(commands.reduce((sum, { ms }) => sum + ms, 0) / TICKS_MEASURED, 2),
    idleTickCommands: rounded(commands.length / TICKS_MEASURED, 2),
  }
}

/** Some claims of a replica at work, its commands timed; then the questions for candidates again, explained. */
async function claimSome(db, log) {
  let claimed = 0
  const observer = {
    claimed: (event) => {
      claimed += event.claimed
    },
  }
  const replica = new Replica({ db, lifecycles: [LIFECYCLES.noop], name: 'bench', observer })
  await replica.prepare()
  log.take()
  await replica.start()
  await until(() => claimed >= CLAIMS_MEASURED, 'documents to be claimed')
  await replica.stop()
  const commands = log.take()
  const parts = Object.groupBy(commands, (command) => partOf(command))
  const candidates = parts.candidates ?? []
  if (candidates.length === 0)
    throw new Error('no command that selects candidates was seen: how does a claim find them?')
  const ms = (part) => (parts[part] ?? []).reduce((sum, command) => sum + command.ms, 0) / claimed
  let keys = 0
  let returned = 0
  for (const command of candidates.slice(0, 6)) {
    const found = await examined(db, command)
    keys += found.keys
    returned += found.returned
  }
  return {
    keysPerClaim: rounded(keys / Math.max(1, returned), 2),
    claimMsPerDocument: rounded(ms('candidates') + ms('claim') + ms('read'), 4),
    candidatesMsPerDocument: rounded(ms('candidates'), 4),
    documentsPerCommand: rounded(claimed / candidates.length, 1),
  }
}

/**
 * Which part of a claim a command is: the selection of candidates reads by phase; the claim writes by phase what nobody
 * holds; what was won is read by its token. All else (looks, outcomes, renewals) is none of them.
 */
function partOf({ name, command }) {
  if (command[name] !== COLLECTION) return 'other'
  if (name === 'find' && mentions(command.filter, 'lockedBy')) return 'read'
  if (name === 'find' || name === 'aggregate') {
    return mentions(command.filter ?? command.pipeline, 'phase') && command.limit !== 1 ? 'candidates' : 'other'
  }
  const query = name === 'update' ? command.updates?.[0]?.q : command.query
  return mentions(query, 'phase') && !mentions(query, 'lockedBy') ? 'claim' : 'other'
}

function mentions(value, field) {
  if (!value || typeof value !== 'object' || value._bsontype) return false
  return Object.entries(value).some(([name, part]) => name === field || mentions(part, field))
}
