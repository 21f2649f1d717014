import { expect } from '@jest/globals'
import type { Collection, Document, MongoClient, MongoServerError } from 'mongodb'
import { protocolClient, protocolClientOptions, protocolCollection } from '../../src/database/index.js'
import { lifecycleOf, type Replica, type RunnableLifecycle, type Step } from '../../src/index.js'
import type { HistoryEntry } from '../../src/lock/index.js'
import { sleep, systemClock } from '../../src/time/index.js'
import { eventually, type TestDatabase } from '../support/database.js'
import type { TcpProxy } from '../support/tcp-proxy.js'
import { recordingLogger, replicaOf } from '../support/thing.js'
import { claimOf } from '../support/traces/check.js'
import { TraceRecorder } from '../support/traces/recorder.js'

/** One run of a step, as its handler told the ledger over a connection that no fault disturbs. */
interface Effect {
  id: string
  step: string
  /** Under which it ran. */
  token: string
  fence: number
}

/** What went wrong with a document's steps; all but `repeated` must be empty whatever happens to the database. */
export interface Account {
  /** Documents that aren't at their end, or steps that were recorded without having run. */
  lost: string[]
  /** Steps that were recorded twice, or ran again after they had been recorded. */
  redone: string[]
  /** Steps of one document of which one began while the other still had its lease. */
  overlapping: string[]
  /** Steps that ran again, because they had been interrupted before they were recorded: what the contract allows. */
  repeated: string[]
  /** What the replicas believed or said and the server or the documents contradict. */
  untrue: string[]
  documents: number
}

interface Job {
  _id: string
  /** The step of the last checkpoint. */
  at?: string
  steps?: number
}

interface Member {
  readonly replica: Replica
  readonly log: ReturnType<typeof recordingLogger>
  /** Ticks that succeeded. */
  ticks: number
  /** Ticks that failed. */
  failures: number
}

const STEPS = ['first', 'second', 'third'] as const
/** After an outage: as many failed ticks, 0.3 s apart, as fit into 2 s. */
export const MOST_FAILURES = 6
/** How long the fleet may take for anything, on a machine that is busy with other things. */
const PATIENCE_MS = 60_000
const TICK_MS = 1_000

/** Two replicas behind a proxy, owners who insert all the time, and the books of what the handlers did. */
export class Fleet {
  readonly replicas: Member[] = []
  recorded = 0
  private readonly clients: MongoClient[] = []
  private readonly ledger: Collection<Effect & { _id?: unknown }>
  private readonly runningNow = new Map<string, Pick<Step<string, Job>, 'leaseLeftMs'>>()
  private readonly overlapping: string[] = []
  private inserted = 0
  private load: AbortController | undefined
  private loading: Promise<void> = Promise.resolve()
  private livedMs = 0
  private tickedAtMs = systemClock.monotonicMs()
  private readonly traces: TraceRecorder

  private constructor(
    private readonly direct: TestDatabase,
    private readonly proxy: TcpProxy,
    private readonly lockTimeoutMs: number,
    ledger: TestDatabase,
    private readonly checkpoints: boolean,
  ) {
    this.ledger = ledger.db.collection('ledger')
    this.traces = TraceRecorder.start(proxy)
  }

  /** @param direct the database past the proxy, for the owners; `ledger` may be on another server */
  static async start(
    direct: TestDatabase,
    proxy: TcpProxy,
    { lockTimeoutMs = 3_000, replicas = 2, handlerMs = 5, ledger = direct, checkpoints = false } = {},
  ): Promise<Fleet> {
    const fleet = new Fleet(direct, proxy, lockTimeoutMs, ledger, checkpoints)
    for (let n = 0; n < replicas; n += 1) await fleet.addReplica(`replica-${n}`, handlerMs)
    return fleet
  }

  /** Two documents each 50 ms until {@link drain}. */
  startLoad(): void {
    const load = new AbortController()
    this.load = load
    const insertUntilOver = async () => {
      while (!load.signal.aborted) {
        await this.insert(2)
        await sleep(50, { signal: load.signal })
      }
    }
    this.loading = insertUntilOver()
  }

  /** As an owner does who gets no answer: again, until they are there. */
  async insert(count: number): Promise<void> {
    const documents = Array.from({ length: count }, () => ({ _id: `d${this.inserted++}`, phase: 'Creating' }))
    for (;;) {
      try {
        return void (await this.documents.insertMany(documents, { ordered: false }))
      } catch (error) {
        if ((error as MongoServerError).code === 11000) return
        await sleep(100)
      }
    }
  }

  /** Under load: until so many steps more have been recorded, and each replica has ticked. (One may get all the work.) */
  async works(steps: number): Promise<void> {
    const ticks = this.replicas.map((one) => one.ticks)
    const recorded = this.recorded
    const missing = () => ({
      idle: this.replicas.filter((one, i) => one.ticks === ticks[i]).map(({ replica }) => replica.status()),
      steps: Math.max(0, recorded + steps - this.recorded),
    })
    await eventually(() => expect(missing()).toEqual({ idle: [], steps: 0 }), { timeoutMs: PATIENCE_MS, everyMs: 10 })
  }

  /**
   * Ends the fault, and says how many ticks of one replica failed after that until each had ticked again and a step was
   * recorded. A failed tick is repeated after 0.3 s: a count says how quick they are back on any machine, a time doesn't.
   */
  async failuresUntilBack(endFault: () => unknown): Promise<number> {
    await endFault()
    const before = this.replicas.map((one) => one.failures)
    await this.works(1)
    return Math.max(...this.replicas.map((one, i) => one.failures - before[i]!))
  }

  /** No more load; until all documents are done. */
  async drain(): Promise<void> {
    this.load?.abort()
    await this.loading
    await eventually(
      async () => {
        const undone = await this.documents.find({ phase: { $ne: 'Created' } }, { limit: 3 }).toArray()
        const status = this.replicas.map(({ replica }) => replica.status())
        expect(undone.length > 0 ? { undone, status } : {}).toEqual({})
      },
      { timeoutMs: PATIENCE_MS, everyMs: 50 },
    )
    await eventually(() => this.replicas.every(({ replica }) => replica.status().held === 0))
  }

  /** How many lines each replica has logged for people, without those about single documents. */
  logLines(): number[] {
    return this.replicas.map(({ log }) => log.lines.filter(({ message }) => !message.startsWith('lease lost')).length)
  }

  async account(): Promise<Account> {
    const effects = new Map<string, Effect[]>()
    for await (const effect of this.ledger.find({}, { sort: { fence: 1 } })) {
      const key = `${effect.id} ${effect.step}`
      effects.set(key, [...(effects.get(key) ?? []), effect])
    }
    const documents = await eventually(() => this.documents.find().toArray())
    const account: Account = {
      lost: documents.length === this.inserted ? [] : [`${this.inserted} inserted, ${documents.length} there`],
      redone: [],
      overlapping: this.overlapping,
      repeated: [],
      untrue: await this.traces.contradictions(this.documents),
      documents: documents.length,
    }
    for (const document of documents) this.audit(document, effects, account)
    return account
  }

  /**
   * Looks whether everything that is due is begun with in time; the faults of a test are nobody's fault. Time passes here as replicas
   * tick, a second at most for each tick that succeeds: neither a starved machine nor a database that is away takes anybody's turn.
   */
  async sample(isFault: boolean): Promise<void> {
    const hasRoom = !isFault && this.replicas.some(({ replica }) => replica.status().notReady.length === 0)
    await this.traces.sample(this.documents, ['Creating'], this.lockTimeoutMs, hasRoom, new Date(this.livedMs))
  }

  private lives(): void {
    const now = systemClock.monotonicMs()
    this.livedMs += Math.min(now - this.tickedAtMs, TICK_MS)
    this.tickedAtMs = now
  }

  async stop(): Promise<void> {
    this.traces.stop()
    this.load?.abort()
    await this.loading.catch(() => undefined)
    await Promise.all(this.replicas.map(({ replica }) => replica.stop()))
    await Promise.all(this.clients.map((client) => client.close()))
  }

  /** Past the proxy; each command ends, also where its server is killed. */
  private get documents(): Collection<Document & { _id: string }> {
    return protocolCollection(this.direct.db, 'Thing')
  }

  private audit(document: Document, effects: Map<string, Effect[]>, account: Account): void {
    const history: HistoryEntry[] = document['progress'].history
    if (document['phase'] !== 'Created' || document['steps'] !== STEPS.length) account.lost.push(document['_id'])
    for (const step of STEPS) {
      const name = `${document['_id']} ${step}`
      const runs = effects.get(name) ?? []
      const recorded = history.filter(
        (entry) => (entry.step ?? 'first') === step && (entry.outcome === 'again' || entry.outcome === 'moveTo'),
      )
      // A checkpoint in between has changed the token, not the claim.
      const run = runs.find((one) => recorded[0] && claimOf(one.token) === claimOf(recorded[0].by))
      if (!run) {
        account.lost.push(name)
        continue
      }
      const later = runs.filter((one) => one.fence > run.fence)
      if (recorded.length > 1 || recorded[0]!.count > 1 || later.length > 0) account.redone.push(name)
      if (runs.length > 1) account.repeated.push(name)
    }
  }

  private async addReplica(name: string, handlerMs: number): Promise<void> {
    const [client, renewals] = [await this.client(), await this.client({ maxPoolSize: 1 })]
    const database = this.direct.db.databaseName
    const log = recordingLogger()
    const replica = replicaOf(client.db(database), this.lifecycle(handlerMs), {
      name,
      renewalDb: renewals.db(database),
      logger: log,
      observer: {
        stepEnded: () => {
          this.recorded += 1
        },
        ticked: ({ error }) => {
          member[error === undefined ? 'ticks' : 'failures'] += 1
          if (error === undefined) this.lives()
        },
      },
      grace: '200ms',
    })
    const member: Member = { replica, log, ticks: 0, failures: 0 }
    this.replicas.push(member)
    // Within a second each, as lockTimeout is short: a busy machine may need more than one try.
    await eventually(() => replica.start())
  }

  private async client(more: { maxPoolSize?: number } = {}): Promise<MongoClient> {
    const client = protocolClient(this.proxy.uri, { ...protocolClientOptions(this.lockTimeoutMs), ...more })
    this.clients.push(client)
    return eventually(() => client.connect())
  }

  private lifecycle(handlerMs: number): RunnableLifecycle {
    const job = lifecycleOf<Job>().define({
      name: 'thing',
      collection: 'Thing',
      lockTimeout: `${this.lockTimeoutMs}ms`,
      phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
    })
    return job.handle({
      Creating: async (doc, step) => {
        const name = step.name ?? STEPS[0]
        const before = this.runningNow.get(doc._id)
        if (before && before.leaseLeftMs() > 0) this.overlapping.push(`${doc._id} ${name}`)
        this.runningNow.set(doc._id, step)
        try {
          const { lockedBy } = doc as Job & { lockedBy: string }
          await this.ledger.insertOne({ id: doc._id, step: name, token: lockedBy, fence: step.fence })
          if (this.checkpoints) await step.checkpoint({ at: name })
          await sleep(handlerMs)
        } finally {
          if (this.runningNow.get(doc._id) === step) this.runningNow.delete(doc._id)
        }
        const next = STEPS[STEPS.indexOf(name as (typeof STEPS)[number]) + 1]
        const set = { steps: (doc.steps ?? 0) + 1 }
        return next ? step.again({ step: next, set }) : step.moveTo('Created', { set })
      },
    })
  }
}
