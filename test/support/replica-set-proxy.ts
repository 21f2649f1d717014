import { createServer, type Server, type Socket } from 'node:net'
import {
  BSON,
  type Collection,
  type Document,
  Long,
  MongoClient,
  type MongoServerError,
  ObjectId,
  Timestamp,
} from 'mongodb'
import { sleep, systemClock } from '../../src/time/index.js'
import { withDatabase } from './database.js'
import { MessageCutter, replyTo, type WireMessage } from './wire-messages.js'

/** What becomes of a command, as a member of a replica set answers around an election. */
export const SET_FAULTS = {
  /** Refused by one that isn't the primary any more. */
  notPrimary: { executes: false, code: 10107 },
  /** Executed; then the member isn't the primary any more and says so. */
  notPrimaryAfterwards: { executes: true, code: 10107 },
  /** The same, as a read is refused that allows no secondary. */
  notPrimaryNoSecondaryOk: { executes: false, code: 13435 },
  interrupted: { executes: false, code: 11602 },
  interruptedAfterwards: { executes: true, code: 11602 },
  /** Executed, and not acknowledged by a majority in time. */
  writeConcernTimeout: { executes: true, concern: 64 },
  /** The same, interrupted by the end of the member's term. */
  writeConcernInterrupted: { executes: true, concern: 11602 },
  /** The connection ends instead of an answer. */
  neverArrived: { executes: false },
  replyLost: { executes: true },
  /** Executed by the primary alone: reads of its own show it, until it is undone. */
  undone: { executes: true, concern: 64, isUndone: true },
  undoneReplyLost: { executes: true, isUndone: true },
} as const satisfies Record<string, Fault>
export type SetFault = keyof typeof SET_FAULTS

interface Fault {
  readonly executes: boolean
  /** Of an error instead of the answer. */
  readonly code?: number
  /** Of a writeConcernError in the answer. Neither: the connection is cut. */
  readonly concern?: number
  readonly isUndone?: boolean
}

type Matching = (command: { name: string; body: Document }) => boolean

interface Armed {
  readonly fault: Fault
  readonly matching: Matching
  left: number
  readonly elects: boolean
  readonly before: (() => unknown) | undefined
  readonly struck: (body: Document) => void
}

/** A write that only the primary has. */
interface Pending {
  readonly collection: Collection
  readonly before: Document[]
  readonly retry: string | undefined
}

const SET_NAME = 'rs'
const NAMES: Readonly<Record<number, string>> = {
  64: 'WriteConcernTimeout',
  10107: 'NotWritablePrimary',
  11602: 'InterruptedDueToReplStateChange',
  13435: 'NotPrimaryNoSecondaryOk',
}
const HELLO = new Set(['', 'hello', 'ismaster', 'isMaster'])
/** Answered by any member. */
const ANYWHERE = new Set(['ping', 'buildInfo', 'endSessions', 'killCursors'])
const READS = new Set([
  'find',
  'aggregate',
  'getMore',
  'count',
  'distinct',
  'listIndexes',
  'listCollections',
  'explain',
])
const LIMITS = ['minWireVersion', 'maxWireVersion', 'maxBsonObjectSize', 'maxMessageSizeBytes', 'maxWriteBatchSize']
const MORE_TO_COME = 2
/** As it is on the wire. */
const AS_STORED = { promoteValues: false, promoteLongs: false, promoteBuffers: false, bsonRegExp: true } as const

/**
 * Answers as the members of a replica set do, before one server without one: each member is a port, one of them is the primary, and a test says
 * which command meets which fault, and when another is elected. What it can't show is in docs/replica-sets.md.
 *
 * - `hello` is that of a member, and is held as long as a heartbeat allows, so that drivers learn of an election at once.
 * - Writes to another member than the primary are refused, as are reads that don't allow a secondary.
 * - A retried write (its `txnNumber`) finds the first one's result, if that was executed and not undone.
 * - Answers have `operationTime` and `$clusterTime`; `gossiped` is the latest that a client has passed on.
 * - A write that is undone is there for local reads of the primary; before anything else is executed, it is gone.
 */
export class ReplicaSetProxy {
  /** Commands that arrived, the oldest first, and the member that they were sent to. */
  readonly seen: { name: string; body: Document; member: number }[] = []
  /** The highest `$clusterTime` that came with a command. */
  gossiped = new Timestamp({ t: 0, i: 0 })
  private primary = 0
  private term = 1
  private clusterTime = new Timestamp({ t: Math.floor(systemClock.now().getTime() / 1_000), i: 1 })
  private changed = Promise.withResolvers<void>()
  private armed: Armed[] = []
  private pending: Pending | undefined
  /** Results of retryable writes. */
  private readonly results = new Map<string, Document>()
  private readonly sockets = new Set<Socket>()
  private readonly processIds: readonly ObjectId[]

  private constructor(
    private readonly client: MongoClient,
    private readonly servers: readonly Server[],
    readonly hosts: readonly string[],
    /** The same database, through this set. */
    readonly uri: string,
    /** What the server can do. */
    private readonly limits: Document,
  ) {
    this.processIds = hosts.map(() => new ObjectId())
    for (const [member, server] of servers.entries())
      server.on('connection', (socket) => this.connected(socket, member))
  }

  static async start(target: string, members = 3): Promise<ReplicaSetProxy> {
    const client = await new MongoClient(target, { directConnection: true }).connect()
    const own = await client.db('admin').command({ hello: 1 })
    const limits = Object.fromEntries(LIMITS.map((name) => [name, own[name]]))
    const servers = Array.from({ length: members }, () => createServer())
    await Promise.all(servers.map((server) => new Promise<void>((done) => server.listen(0, '127.0.0.1', done))))
    const hosts = servers.map((server) => `127.0.0.1:${(server.address() as { port: number }).port}`)
    const uri = withDatabase(`mongodb://${hosts.join(',')}/?replicaSet=${SET_NAME}`, client.db().databaseName)
    return new ReplicaSetProxy(client, servers, hosts, uri, limits)
  }

  /** Another member is the primary from now on; connections stay, and what only the old one had is undone. */
  async elect(member = (this.primary + 1) % this.hosts.length): Promise<void> {
    await this.undo()
    this.primary = member
    this.newTerm()
  }

  /**
   * The next commands that match meet this fault.
   * @param how.times how many of them
   * @param how.elects another member is elected with it
   * @param how.before what happens before the command is executed, or refused
   * @returns resolves with the last of these commands when it has met it
   */
  fault(
    matching: Matching,
    kind: SetFault,
    how: { times?: number; elects?: boolean; before?: () => unknown } = {},
  ): Promise<Document> {
    const { times = 1, elects = false, before } = how
    return new Promise((struck) => {
      this.armed.push({ fault: SET_FAULTS[kind], matching, left: times, elects, before, struck })
    })
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy()
    await Promise.all(this.servers.map((server) => new Promise((done) => server.close(done))))
    await this.client.close()
  }

  private connected(socket: Socket, member: number): void {
    const cutter = new MessageCutter()
    this.sockets.add(socket)
    socket.setNoDelay(true)
    socket.on('error', () => undefined) // 'close' follows
    socket.on('close', () => this.sockets.delete(socket))
    socket.on('data', (chunk) => {
      for (const message of cutter.push(chunk))
        this.answer(message, member, socket).catch((error) => socket.destroy(error))
    })
  }

  private async answer(message: WireMessage, member: number, socket: Socket): Promise<void> {
    const reply = HELLO.has(message.name) ? await this.hello(message, member) : await this.execute(message, member)
    const wantsNone = message.name !== '' && (message.bytes.readInt32LE(16) & MORE_TO_COME) !== 0
    if (reply === 'cut') socket.destroy()
    else if (!wantsNone && !socket.destroyed) socket.write(replyTo(message, this.timed(reply)))
  }

  private timed(reply: Document): Document {
    this.clusterTime = new Timestamp({ t: this.clusterTime.t, i: this.clusterTime.i + 1 })
    const signature = { hash: new BSON.Binary(Buffer.alloc(20)), keyId: Long.ZERO }
    return { ...reply, $clusterTime: { clusterTime: this.clusterTime, signature }, operationTime: this.clusterTime }
  }

  private async hello(message: WireMessage, member: number): Promise<Document> {
    const { topologyVersion, maxAwaitTimeMS } = message.name === '' ? {} : message.body()
    const isCurrent = topologyVersion && Number(topologyVersion.counter) === this.term
    if (isCurrent && maxAwaitTimeMS > 0)
      await Promise.race([this.changed.promise, sleep(maxAwaitTimeMS, { unref: true })])
    const isPrimary = member === this.primary
    return {
      ...{ helloOk: true, isWritablePrimary: isPrimary, ismaster: isPrimary, secondary: !isPrimary, ok: 1 },
      ...{ setName: SET_NAME, setVersion: 1, hosts: this.hosts, me: this.hosts[member] },
      primary: this.hosts[this.primary],
      ...(isPrimary && {
        electionId: ObjectId.createFromHexString(`7fffffff${this.term.toString(16).padStart(16, '0')}`),
      }),
      topologyVersion: this.topologyVersion(member),
      ...this.limits,
      ...{ localTime: systemClock.now(), logicalSessionTimeoutMinutes: 30, connectionId: 1, readOnly: false },
    }
  }

  private topologyVersion(member: number): Document {
    return { processId: this.processIds[member], counter: Long.fromNumber(this.term) }
  }

  private newTerm(): void {
    this.term += 1
    this.changed.resolve()
    this.changed = Promise.withResolvers()
  }

  private async execute(message: WireMessage, member: number): Promise<Document | 'cut'> {
    const { name } = message
    const body = message.body()
    this.seen.push({ name, body, member })
    const sent = body['$clusterTime']?.clusterTime as Timestamp | undefined
    if (sent?.greaterThan(this.gossiped)) this.gossiped = sent
    if (name === 'endSessions') return { ok: 1 }
    const armed = this.strike(name, body)
    await armed?.before?.()
    const isTaken = member === this.primary || ANYWHERE.has(name) || (READS.has(name) && allowsSecondary(body))
    if (!isTaken) return this.refusal(READS.has(name) ? 13_435 : 10_107, body, member)
    return armed ? await this.faulty(armed, message, body, member) : await this.run(message, body)
  }

  private strike(name: string, body: Document): Armed | undefined {
    const armed = this.armed.find(({ matching }) => matching({ name, body }))
    if (!armed) return undefined
    armed.left -= 1
    if (armed.left === 0) this.armed = this.armed.filter((one) => one !== armed)
    return armed
  }

  private async faulty(
    { fault, elects, left, struck }: Armed,
    message: WireMessage,
    body: Document,
    member: number,
  ): Promise<Document | 'cut'> {
    const { executes, code, concern, isUndone } = fault
    if (isUndone) await this.remember(message, body)
    const reply = executes ? await this.run(message, body, isUndone) : {}
    // What only the old primary has is undone when it joins the new one, which may be later.
    if (elects) {
      this.primary = (this.primary + 1) % this.hosts.length
      this.newTerm()
    }
    if (left === 0) struck(body)
    if (code !== undefined) return this.refusal(code, body, member)
    if (concern === undefined) return 'cut'
    const writeConcernError = { code: concern, codeName: NAMES[concern], errmsg: 'a fault of the test' }
    return { ...reply, writeConcernError, ...(concern === 64 ? {} : retryable(body)) }
  }

  private refusal(code: number, body: Document, member: number): Document {
    const topologyVersion = this.topologyVersion(member)
    return { ok: 0, code, codeName: NAMES[code], errmsg: 'a fault of the test', topologyVersion, ...retryable(body) }
  }

  private async run(message: WireMessage, body: Document, isUndone = false): Promise<Document> {
    const isLocalRead = READS.has(message.name) && body['readConcern']?.level !== 'majority'
    if (!isLocalRead && !isUndone) await this.undo()
    const retry = retryOf(body)
    const before = retry && this.results.get(retry)
    if (before) return before
    const {
      $db,
      lsid: _lsid,
      txnNumber: _txn,
      $clusterTime: _time,
      $readPreference: _mode,
      ...command
    } = message.body(AS_STORED)
    const reply = await this.client
      .db($db as string)
      .command(command, AS_STORED)
      .catch((error: MongoServerError) => error.errorResponse ?? Promise.reject(error))
    if (retry && reply['ok']?.valueOf() === 1) this.results.set(retry, reply)
    return reply
  }

  private async remember({ name }: WireMessage, body: Document): Promise<void> {
    const collection = this.client.db(body['$db']).collection(body[name])
    this.pending ??= { collection, before: await collection.find({}, AS_STORED).toArray(), retry: retryOf(body) }
  }

  /** Puts back what the majority has. */
  private async undo(): Promise<void> {
    const { pending } = this
    if (!pending) return
    this.pending = undefined
    const { collection, before, retry } = pending
    if (retry) this.results.delete(retry)
    await collection.deleteMany({ _id: { $nin: before.map(({ _id }) => _id) } })
    for (const { _id, ...fields } of before) await collection.replaceOne({ _id }, fields, { upsert: true })
  }
}

/** As servers label what a driver may send again. */
const retryable = ({ txnNumber }: Document): Document =>
  txnNumber === undefined ? {} : { errorLabels: ['RetryableWriteError'] }

const retryOf = ({ lsid, txnNumber }: Document): string | undefined =>
  txnNumber === undefined ? undefined : `${lsid?.id?.toString('hex')}:${txnNumber}`

const allowsSecondary = ({ $readPreference }: Document): boolean =>
  $readPreference !== undefined && $readPreference.mode !== 'primary'
