import { fileURLToPath } from 'node:url'
import type { Db, Document, Filter } from 'mongodb'
import { PARKED, tokenOf } from '../../lock/index.js'
import { numbered, typed } from '../../options/index.js'
import { lookAtCensus, readCensus } from '../../phases/index.js'
import { sleep, systemClock } from '../../time/index.js'
import { described, ReplicaFailed, ReplicaProcess } from '../processes/replica-process.js'
import { type CleanUp, withCleanUps } from './clean-ups.js'
import { openDemoDatabase } from './demo-database.js'
import { type Figures, figuresOf } from './ledger.js'
import { Storage } from './storage.js'
import { runsIn, STEPS, tenant } from './tenants.js'

const PROGRAM = fileURLToPath(new URL('./replica-process.js', import.meta.url))
const TENANTS = 30
/** The storage goes down once it has this many buckets. */
const BUCKETS_BEFORE = 10
/** The replica is killed once it holds this many tenants, after the storage is back. */
const HELD_BEFORE = 2
const LOOK_EVERY_MS = 100
const LINE_EVERY_MS = 1_000
/** The time without any progress after which the demo goes on to judge: even on a very busy machine something moves within it. */
const PATIENCE_MS = 60_000

/** The output of `phaselock demo --json`. */
export interface DemoResult extends Figures {
  /** `off`: a figure that must be 0 isn't, or a command of a scene failed. */
  readonly verdict: 'shown' | 'off'
  readonly documents: number
  /** Runs of handlers beyond one for each step: those that failed without the storage, and those that died with their replica. */
  readonly stepsRunAgain: number
  /** Tenants that were parked while the storage was down. */
  readonly parked: number
  /** The output of `phaselock causes` while the storage was down. */
  readonly causes: string
  readonly leasesAtKill: number
  /** The time from the kill until another replica had taken over the last document that the killed one held. */
  readonly recoverySeconds: number
  readonly lockTimeoutSeconds: number
  readonly seconds: number
}

/** The demo's ways to the outside. */
export interface Stage {
  /** Called with each line of its progress. */
  note(text: string): void
  /** Runs a command line of phaselock against the demo's database, as a person would. @returns its output and its exit code */
  type(
    args: readonly string[],
    database: { readonly uri: string; readonly name: string },
  ): Promise<{ readonly text: string; readonly code: number }>
}

/**
 * Runs the demo in a database of its own, and leaves nothing behind: no process, no data.
 * @param signal ends it early
 * @throws ReplicaFailed; Interrupted; what connectDatabase throws
 */
export const runDemo = (stage: Stage, signal: AbortSignal): Promise<DemoResult> =>
  withCleanUps(signal, (atEnd) => run(stage, atEnd))

async function run(stage: Stage, atEnd: (cleanUp: CleanUp) => void): Promise<DemoResult> {
  const { note } = stage
  const startedMs = systemClock.monotonicMs()
  const seconds = (sinceMs: number) => Math.round((systemClock.monotonicMs() - sinceMs) / 100) / 10
  const { connection, name, serverGoesOn, close } = await openDemoDatabase(note)
  atEnd(close)
  const { db, uri } = connection
  const storage = new Storage()
  await storage.up()
  atEnd(() => storage.down())
  const start = async (replicaName: string) => {
    const replica = new ReplicaProcess(PROGRAM, { output: 'ignore', diesWithUs: true })
    atEnd(() => {
      replica.kill()
      return replica.ended
    })
    replica.tell({ name: replicaName, uri, database: name, storageUrl: storage.url })
    await replica.settled
    const { failure } = replica
    if (replica.identity === undefined) throw new ReplicaFailed(replicaName, failure ?? described(await replica.ended))
    return replica
  }
  let failed = false
  const type = async (...args: string[]) => {
    note(`$ npx phaselock ${args.map((arg) => typed(arg)).join(' ')}`)
    const { text, code } = await stage.type(args, { uri, name })
    failed ||= code !== 0
    for (const line of text.trimEnd().split('\n')) note(`  ${line}`)
    return text
  }

  // A connection string of one's own may hold a password: it isn't printed.
  const where = [...(serverGoesOn ? [] : [`MONGODB_URI=${uri}`]), `PHASELOCK_DATABASE=${name}`].join(' ')
  note(`to watch, in another terminal: ${where} npx phaselock status --watch`)
  const [a] = await Promise.all([start('a'), start('b')])
  note('replicas a and b run, each in a process of its own')
  const tenants = db.collection<Document & { _id: string }>(tenant.model.collection)
  const ids = Array.from({ length: TENANTS }, (_, i) => `tenant-${String(i + 1).padStart(2, '0')}`)
  await tenants.insertMany(ids.map((_id) => ({ _id, phase: 'Storage' })))
  note(
    `inserted ${TENANTS} tenants, as any program that writes to MongoDB would: { _id: '${ids[0]}', phase: 'Storage' }`,
  )

  const progress = new Progress(db, note)
  const parked = () => tenants.countDocuments(PARKED as Filter<Document & { _id: string }>)
  const ready = () => tenants.countDocuments({ phase: 'Ready' })
  await progress.until(async () => storage.buckets.size >= BUCKETS_BEFORE)
  await storage.down()
  note(`the storage goes down, with ${numbered(storage.buckets.size, 'bucket')}: each tenant tries three times`)
  await progress.until(async () => (await parked()) + (await ready()) === TENANTS)
  const wereParked = await parked()
  note(
    `${numbered(wereParked, 'tenant')} could not go on, and ${wereParked === 1 ? 'is' : 'are'} parked. What needs a person, and why?`,
  )
  await progress.untilCounted()
  const causes = await type('causes')

  await storage.up()
  note('the storage is back. One operation brings all on that were parked:')
  await type('operations', 'run', 'unpark', '--lifecycle', 'tenant', '--parked', '--reason', 'storage is back', '--yes')
  await progress.until(async () => (await heldBy(db, 'a')).length >= HELD_BEFORE)
  a.kill()
  await a.ended
  const killedMs = systemClock.monotonicMs()
  const held = await heldBy(db, 'a')
  note(`killed replica a (kill -9), which held ${numbered(held.length, 'tenant')}: b takes over when their leases end`)
  await progress.until(async () => (await heldBy(db, 'a')).length === 0)
  const recoverySeconds = seconds(killedMs)
  note(`b has taken over all of them, ${recoverySeconds} s after the kill`)
  await progress.until(async () => (await ready()) === TENANTS)
  await progress.untilCounted()
  await type('status')

  const figures = figuresOf(await tenants.find().toArray(), await runsIn(db).find().toArray())
  const isShown = figures.lost + figures.repeated + figures.overlapping === 0 && !failed
  return {
    verdict: isShown ? 'shown' : 'off',
    documents: TENANTS,
    ...figures,
    stepsRunAgain: figures.stepsBegun - STEPS.length * (TENANTS - figures.lost),
    parked: wereParked,
    causes,
    leasesAtKill: held.length,
    recoverySeconds,
    lockTimeoutSeconds: tenant.model.settings.lockTimeoutMs / 1_000,
    seconds: seconds(startedMs),
  }
}

/** The tenants that a replica holds, alive or not: their token names it. */
const heldBy = async (db: Db, replica: string) =>
  (await db.collection(tenant.model.collection).find().toArray()).filter((one) =>
    tokenOf(one)?.startsWith(`${replica}~`),
  )

/** The tenants' way through the phases, with a line a second. */
class Progress {
  private text = ''
  private shownMs = Number.NEGATIVE_INFINITY
  private movedMs = systemClock.monotonicMs()

  constructor(
    private readonly db: Db,
    private readonly note: (text: string) => void,
  ) {}

  /** Waits for a state, as long as anything moves. */
  async until(isReached: () => Promise<boolean>): Promise<void> {
    this.movedMs = systemClock.monotonicMs()
    while (!(await isReached())) {
      await this.look()
      if (systemClock.monotonicMs() - this.movedMs > PATIENCE_MS) return
      await sleep(LOOK_EVERY_MS)
    }
  }

  /** Waits for a census that begins from now on: people read what it counts, and it comes within seconds while somebody looks. */
  async untilCounted(): Promise<void> {
    const { name } = tenant.model
    // Undefined: there is none yet.
    const { now: fromNow = new Date(0) } = await readCensus(this.db, [name])
    const sinceMs = systemClock.monotonicMs()
    while (systemClock.monotonicMs() - sinceMs < PATIENCE_MS) {
      await lookAtCensus(this.db)
      const { census } = await readCensus(this.db, [name])
      if (census.get(name) && census.get(name)!.at >= fromNow) return
      await sleep(LOOK_EVERY_MS)
    }
  }

  private async look(): Promise<void> {
    const nowMs = systemClock.monotonicMs()
    const counts = await this.db
      .collection(tenant.model.collection)
      .aggregate([{ $sortByCount: '$phase' }])
      .toArray()
    const inPhase = (phase: string) => counts.find(({ _id }) => _id === phase)?.['count'] ?? 0
    const runs = await runsIn(this.db).estimatedDocumentCount()
    const phases = [...tenant.model.phases.keys()]
    const text = phases.map((phase) => `${phase} ${String(inPhase(phase)).padStart(2)}`).join('   ')
    if (`${text} ${runs}` === this.text) return
    this.text = `${text} ${runs}`
    this.movedMs = nowMs
    if (nowMs - this.shownMs < LINE_EVERY_MS) return
    this.shownMs = nowMs
    this.note(text)
  }
}
