import { fileURLToPath } from 'node:url'
import { type Db, ObjectId } from 'mongodb'
import { tokenOf } from '../../lock/index.js'
import { numbered } from '../../options/index.js'
import { sleep, systemClock } from '../../time/index.js'
import { described, ReplicaFailed, ReplicaProcess } from '../processes/replica-process.js'
import { type CleanUp, withCleanUps } from './clean-ups.js'
import { openDemoDatabase } from './demo-database.js'
import { order, runsIn, STEPS } from './orders.js'

const PROGRAM = fileURLToPath(new URL('./replica-process.js', import.meta.url))
const ORDERS = 60
/** The replica is killed once this many orders are delivered and it holds this many others. */
const DELIVERED_BEFORE = 5
const HELD_BEFORE = 3
const LOOK_EVERY_MS = 100
const LINE_EVERY_MS = 1_000
/** The time without any progress after which an order counts as lost: even on a very busy machine something moves within it. */
const PATIENCE_MS = 60_000

/** The output of `phaselock demo --json`. */
export interface DemoResult {
  /** `off`: an order was lost. */
  readonly verdict: 'shown' | 'off'
  readonly documents: number
  /** Orders that were never delivered. */
  readonly lost: number
  readonly stepsBegun: number
  /** Handlers that ran a second time, because the first died with its replica. */
  readonly stepsRunAgain: number
  readonly leasesAtKill: number
  /** The time from the kill until another replica had taken over the last document that the killed one held. */
  readonly recoverySeconds: number
  readonly lockTimeoutSeconds: number
  readonly seconds: number
}

/**
 * Runs the demo in a database of its own, and leaves nothing behind: no process, no data.
 * @param note called with each line of its progress
 * @param signal ends it early
 * @throws ReplicaFailed; Interrupted; what connectDatabase throws
 */
export const runDemo = (note: (text: string) => void, signal: AbortSignal): Promise<DemoResult> =>
  withCleanUps(signal, (atEnd) => run(note, atEnd))

async function run(note: (text: string) => void, atEnd: (cleanUp: CleanUp) => void): Promise<DemoResult> {
  const startedMs = systemClock.monotonicMs()
  const seconds = (sinceMs: number) => Math.round((systemClock.monotonicMs() - sinceMs) / 100) / 10
  const { connection, name: database, close } = await openDemoDatabase(note)
  atEnd(close)
  const { db, uri } = connection
  const start = async (name: string) => {
    const replica = new ReplicaProcess(PROGRAM, { output: 'ignore', diesWithUs: true })
    atEnd(() => {
      replica.kill()
      return replica.ended
    })
    replica.tell({ name, uri, database })
    await replica.settled
    const { failure } = replica
    if (replica.identity === undefined) throw new ReplicaFailed(name, failure ?? described(await replica.ended))
    return replica
  }
  const [a] = await Promise.all([start('a'), start('b')])
  note('started replicas a and b, each in a process of its own')
  const orders = db.collection(order.model.collection)
  await orders.insertMany(Array.from({ length: ORDERS }, () => ({ _id: new ObjectId(), phase: 'Paying' })))
  note(
    `inserted ${ORDERS} orders into ${database}.${order.model.collection}, as any program that writes to MongoDB would: { phase: 'Paying' }`,
  )

  const progress = new Progress(db, note)
  await progress.until(
    async () => (await progress.delivered()) >= DELIVERED_BEFORE && (await heldBy(db, 'a')).length >= HELD_BEFORE,
  )
  a.kill()
  await a.ended
  const killedMs = systemClock.monotonicMs()
  const held = await heldBy(db, 'a')
  note(
    `killed replica a (kill -9), which held ${numbered(held.length, 'order')}: b takes them over within a few seconds`,
  )
  await progress.until(async () => (await heldBy(db, 'a')).length === 0)
  const recoverySeconds = seconds(killedMs)
  note(`b has taken over all of them, ${recoverySeconds} s after the kill`)
  await progress.until(async () => (await progress.delivered()) === ORDERS)

  const lost = ORDERS - (await progress.delivered())
  const stepsBegun = await runsIn(db).countDocuments()
  return {
    verdict: lost === 0 ? 'shown' : 'off',
    documents: ORDERS,
    lost,
    stepsBegun,
    stepsRunAgain: stepsBegun - STEPS * (ORDERS - lost),
    leasesAtKill: held.length,
    recoverySeconds,
    lockTimeoutSeconds: order.model.settings.lockTimeoutMs / 1_000,
    seconds: seconds(startedMs),
  }
}

/** The orders that a replica holds, alive or not: their token names it. */
const heldBy = async (db: Db, replica: string) =>
  (await db.collection(order.model.collection).find().toArray()).filter((one) =>
    tokenOf(one)?.startsWith(`${replica}~`),
  )

/** The orders' way through the phases, with a line a second. */
class Progress {
  private text = ''
  private shownMs = Number.NEGATIVE_INFINITY
  private movedMs = systemClock.monotonicMs()

  constructor(
    private readonly db: Db,
    private readonly note: (text: string) => void,
  ) {}

  async delivered(): Promise<number> {
    return await this.db.collection(order.model.collection).countDocuments({ phase: 'Delivered' })
  }

  /** Waits for a state, as long as anything moves. */
  async until(isReached: () => Promise<boolean>): Promise<void> {
    while (!(await isReached())) {
      await this.look()
      if (systemClock.monotonicMs() - this.movedMs > PATIENCE_MS) return
      await sleep(LOOK_EVERY_MS)
    }
  }

  private async look(): Promise<void> {
    const nowMs = systemClock.monotonicMs()
    const counts = await this.db
      .collection(order.model.collection)
      .aggregate([{ $sortByCount: '$phase' }])
      .toArray()
    const inPhase = (phase: string) => counts.find(({ _id }) => _id === phase)?.['count'] ?? 0
    const text = [...order.model.phases.keys()]
      .map((phase) => `${phase} ${String(inPhase(phase)).padStart(2)}`)
      .join('   ')
    if (text === this.text) return
    this.text = text
    this.movedMs = nowMs
    if (nowMs - this.shownMs < LINE_EVERY_MS) return
    this.shownMs = nowMs
    this.note(text)
  }
}
