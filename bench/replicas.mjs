import { setTimeout as sleep } from 'node:timers/promises'
import { contestant } from './contestant.mjs'
import { LIFECYCLES } from './lifecycles.mjs'
import { FLOOR_FIELDS, sized } from './measure.mjs'
import { alternating } from './rounds.mjs'
import { median, rounded } from './statistics.mjs'
import { COLLECTION, countWrong, insertAll, newDocuments, prepareCollection, STEPS } from './workload.mjs'

const CREWS = { one: 1, two: 2, four: 4 }
/** Two processes of the hand-written floor: what a second process is worth where nobody has to be careful. */
const FLOORS = { floor: 1, twoFloors: 2 }
/** Of a round's documents, for each process: every one of a crew is to be as warm as the one that is alone. */
const WARM_UP_SHARE = 0.5
/** Replicas that have started know each other after some ticks. */
const SETTLE_MS = 3_500

/**
 * One, two and four replicas, each in a process of its own and running all the time, on one backlog of six-step documents
 * without data that is there all at once; in turn with one and two of the floor's: throughput, and the share of candidates
 * that went to another replica.
 */
export async function run(server, { progress, ...size }) {
  const { pace, rounds } = sized(size, { documents: 12_000, rounds: size.quick ? 2 : 5 })
  const tally = { wrong: 0, claimed: {}, lost: {} }
  const crews = []
  try {
    const contestants = {}
    for (const [name, replicas] of Object.entries(CREWS)) {
      const crew = await replicaCrew(server, replicas)
      crews.push(crew)
      contestants[name] = pace.kept(STEPS, (documents) => onBacklog(crew, { name, documents }, tally))
    }
    for (const [name, floors] of Object.entries(FLOORS)) {
      const crew = await floorCrew(server, floors)
      crews.push(crew)
      contestants[name] = pace.kept(STEPS, (documents) =>
        onBacklog(crew, { name, documents, extra: FLOOR_FIELDS }, tally),
      )
    }
    await sleep(SETTLE_MS)
    const figures = await alternating(contestants, rounds, progress)
    const against = (name, one) => rounded(median(figures[name].map((figure, i) => figure / figures[one][i])), 3)
    return {
      twoReplicas: against('two', 'one'),
      fourReplicas: against('four', 'one'),
      twoFloors: against('twoFloors', 'floor'),
      stepsPerSecondByReplicas: perCrew(CREWS, (name) => Math.round(median(figures[name]))),
      lostShare: lostShare(tally, 'two', 'four'),
      lostShareByReplicas: perCrew(CREWS, (name) => lostShare(tally, name)),
      documents: pace.documents,
      rounds,
      wrong: tally.wrong,
    }
  } finally {
    await Promise.all(crews.map((crew) => crew.close()))
  }
}

const perCrew = (crews, figure) =>
  Object.fromEntries(Object.entries(crews).map(([name, replicas]) => [String(replicas), figure(name)]))

/** Replicas that have started; `drain` resolves when so many documents more are done. */
async function replicaCrew(server, size) {
  const db = await preparedDatabase(server)
  const processes = await all(size, () => contestant(server.uri))
  const counts = processes.map(() => ({ claimed: 0, lost: 0, done: 0 }))
  const sums = () => ({ claimed: sum(counts, 'claimed'), lost: sum(counts, 'lost'), done: sum(counts, 'done') })
  let received = () => undefined
  const job = { kind: 'engine', lifecycle: 'bare', database: db.databaseName }
  const ends = await Promise.all(
    processes.map((process, i) =>
      process.stay(job, (told) => {
        counts[i] = told
        received()
      }),
    ),
  )
  return {
    db,
    size,
    async drain(begin, documents) {
      const before = sums()
      const drained = new Promise((resolve) => {
        received = () => sums().done - before.done >= documents && resolve()
      })
      await begin()
      await drained
      const after = sums()
      return { claimed: after.claimed - before.claimed, lost: after.lost - before.lost }
    },
    async close() {
      await Promise.all(ends.map((end) => end()))
      await Promise.all(processes.map((process) => process.close()))
    },
  }
}

async function floorCrew(server, size) {
  const db = await preparedDatabase(server)
  const processes = await all(size, () => contestant(server.uri))
  return {
    db,
    size,
    async drain(begin) {
      const job = { kind: 'floor', steps: STEPS, database: db.databaseName }
      const starts = await Promise.all(processes.map((process, claimer) => process.ready({ ...job, claimer })))
      await begin()
      await Promise.all(starts.map((go) => go()))
      return { claimed: 0, lost: 0 }
    },
    close: () => Promise.all(processes.map((process) => process.close())),
  }
}

async function preparedDatabase(server) {
  const db = server.database()
  await prepareCollection(db)
  return db
}

/**
 * A round: a backlog is filled beside the collection and takes its place at once; with the last of its documents, by the
 * owner's API, the doorbell rings. It takes until all are done.
 */
function onBacklog(crew, { name, documents: count, extra }, tally) {
  return async (round) => {
    const { db, size } = crew
    const documents = newDocuments(round === 0 ? Math.ceil(count * WARM_UP_SHARE) * size : count, extra)
    const last = documents.pop()
    await prepareCollection(db, BACKLOG)
    await insertAll(db, documents, { collection: BACKLOG })
    let startedMs
    const begin = async () => {
      startedMs = performance.now()
      await db.renameCollection(BACKLOG, COLLECTION, { dropTarget: true })
      await LIFECYCLES.bare.attach(db).insertMany([last], { ringFor: 'phase' })
    }
    const { claimed, lost } = await crew.drain(begin, documents.length + 1)
    const seconds = (performance.now() - startedMs) / 1_000
    tally.wrong += await countWrong(db, { count: documents.length + 1, steps: STEPS })
    if (round > 0) {
      tally.claimed[name] = (tally.claimed[name] ?? 0) + claimed
      tally.lost[name] = (tally.lost[name] ?? 0) + lost
    }
    return ((documents.length + 1) * STEPS) / seconds
  }
}

const BACKLOG = `${COLLECTION}Backlog`

/** Of all candidates that these crews tried for. */
function lostShare({ claimed, lost }, ...names) {
  const total = (counts) => names.reduce((all, name) => all + (counts[name] ?? 0), 0)
  const tried = total(claimed) + total(lost)
  return tried === 0 ? 0 : rounded(total(lost) / tried, 4)
}

const all = (count, make) => Promise.all(Array.from({ length: count }, make))
const sum = (rows, field) => rows.reduce((total, row) => total + row[field], 0)
