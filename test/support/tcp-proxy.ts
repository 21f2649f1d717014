import { connect, createServer, type Server, type Socket } from 'node:net'
import type { Document } from 'mongodb'
import { systemClock } from '../../src/time/index.js'
import { restamped, stamped } from './server-time.js'
import { MessageCutter, replyTo, type WireMessage } from './wire-messages.js'

/** Which commands a fault is about: by name (`update`), or by looking at the command's document. */
export type Matching = string | ((command: { name: string; body: Document }) => boolean)

/** What was asked for one command; it is used up by the nth match. */
interface Fault {
  readonly matching: Matching
  left: number
  readonly apply: (connection: Connection, command: WireMessage) => void
}

/** A command that was stopped on its way to the server. */
export interface HeldCommand {
  readonly body: Document
  /** Lets it go on to the server, also when the client has hung up meanwhile: a write that comes late. */
  release(): void
}

/** A command that was sent on to the server, and what that said. */
export interface Answered {
  readonly body: Document
  /** Undefined: the connection ended before; whether it was executed isn't known. */
  readonly reply: Document | undefined
  /** When it was sent on to the server: it was executed later. */
  readonly sentAt: Date
}

/** What a command is answered with in the server's place, now or later; undefined: the server answers. */
type Replies = (command: { name: string; body: Document }) => Document | Promise<Document> | undefined

const BROKEN = new Set(['', 'hello', 'ismaster', 'isMaster'])

/**
 * Sits between a driver and a MongoDB server and breaks what it is told to break, command by command. Heartbeats and
 * handshakes pass unless everything is blackholed. Not for TLS or compressed connections.
 *
 * - `pass()`: everything goes through (from the start).
 * - `blackhole()`: nothing goes through in either direction, and nothing is closed: what a dead switch looks like.
 * - `passNew()`: connections over which anything went before stay silent for ever (a firewall has forgotten them); others pass.
 * - `refuse()`: connections are closed, new ones at once: what a dead server looks like.
 * - `slow(ms)`: everything takes that much longer, each way.
 * - `answerAll(reply)`: each command that it has a reply for gets it and never reaches the server, until `pass()`.
 * - `answerHello(reply)`: heartbeats and handshakes are answered so, for good: what another kind of server says of itself.
 * - `cutBefore(matching, nth)`: the nth matching command never reaches the server; the connection is cut instead.
 * - `cutAfter(matching, nth)`: it is executed, and the connection is cut instead of bringing the reply.
 * - `hold(matching, nth)`: it waits in the proxy until it is released.
 * - `answer(matching, reply, nth)`: it never reaches the server; the client gets this reply.
 * - `stepClock(ms)`: the server's clock, as clients of this proxy see it, steps (server-time.ts). One proxy each for clients that
 *   are to see clocks of their own, as those of several routers or members do.
 */
export class TcpProxy {
  /** Commands that came by, the oldest first. */
  readonly seen: { name: string; body: Document }[] = []
  /** Told of what became of each command, whether or not the client gets the answer. */
  onAnswered: ((answered: Answered) => void) | undefined
  private mode: 'pass' | 'blackhole' | 'refuse' = 'pass'
  private delayMs = 0
  private clockAheadMs = 0
  private replies: Replies = () => undefined
  private hello: Document | undefined
  private faults: Fault[] = []
  private readonly connections = new Set<Connection>()

  private constructor(
    private readonly server: Server,
    readonly uri: string,
  ) {}

  /** A proxy on a port of its own. `uri` then is the same database's through it, over this one server only. */
  static async start(target: string): Promise<TcpProxy> {
    const [, scheme, login = '', host, rest = ''] = /^(mongodb:\/\/)([^@/]*@)?([^/?,]+)(.*)$/.exec(target) ?? []
    if (!host) throw new Error(`expected a mongodb:// connection string with one host, got ${target}`)
    const [name = 'localhost', port = '27017'] = host.split(':')
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port: ownPort } = server.address() as { port: number }
    const path = rest === '' ? '/' : rest
    const query = path.includes('directConnection') ? '' : `${path.includes('?') ? '&' : '?'}directConnection=true`
    const proxy = new TcpProxy(server, `${scheme}${login}127.0.0.1:${ownPort}${path}${query}`)
    server.on('connection', (client) => proxy.connected(client, connect(Number(port), name)))
    return proxy
  }

  pass(): void {
    this.mode = 'pass'
    this.delayMs = 0
    this.replies = () => undefined
    for (const connection of this.connections) connection.flow()
  }

  blackhole(): void {
    this.mode = 'blackhole'
  }

  passNew(): void {
    for (const connection of this.connections) connection.forget()
    this.pass()
  }

  slow(ms: number): void {
    this.delayMs = ms
  }

  stepClock(ms: number): void {
    this.clockAheadMs += ms
  }

  answerAll(reply: Replies): void {
    this.replies = reply
  }

  answerHello(reply: Document): void {
    this.hello = reply
  }

  refuse(): void {
    this.mode = 'refuse'
    for (const connection of this.connections) connection.cut()
  }

  cutBefore(matching: Matching, nth = 1): Promise<Document> {
    return this.once(matching, nth, (connection) => connection.cut())
  }

  cutAfter(matching: Matching, nth = 1): Promise<Document> {
    return this.once(matching, nth, (connection, command) => connection.cutAtReplyTo(command))
  }

  hold(matching: Matching, nth = 1): Promise<HeldCommand> {
    return new Promise((resolve) => {
      void this.once(matching, nth, (connection, command) => {
        connection.hold()
        resolve({ body: command.body(), release: () => connection.release(command) })
      })
    })
  }

  answer(matching: Matching, reply: Document, nth = 1): Promise<Document> {
    return this.once(matching, nth, (connection, command) => connection.answer(command, reply))
  }

  /** How many commands of this name came by. */
  count(name: string): number {
    return this.seen.filter((command) => command.name === name).length
  }

  async stop(): Promise<void> {
    for (const connection of this.connections) connection.cut()
    await new Promise((resolve) => this.server.close(resolve))
  }

  /** Resolves with the command when the fault has struck. */
  private once(matching: Matching, nth: number, strike: Fault['apply']): Promise<Document> {
    return new Promise((resolve) => {
      const apply: Fault['apply'] = (connection, command) => {
        strike(connection, command)
        resolve(command.body())
      }
      this.faults.push({ matching, left: nth, apply })
    })
  }

  private connected(client: Socket, server: Socket): void {
    if (this.mode === 'refuse') {
      client.destroy()
      server.destroy()
      return
    }
    const connection = new Connection(client, server, {
      blocked: () => this.mode === 'blackhole',
      delayMs: () => this.delayMs,
      clockAheadMs: () => this.clockAheadMs,
      faultOf: (command) => this.faultOf(command),
      onAnswered: () => this.onAnswered,
      closed: () => this.connections.delete(connection),
    })
    this.connections.add(connection)
  }

  private faultOf(command: WireMessage): Fault | undefined {
    if (BROKEN.has(command.name)) return this.helloTo(command)
    const asked = { name: command.name, body: command.body() }
    this.seen.push(asked)
    const hit = this.faults.filter(({ matching }) =>
      typeof matching === 'string' ? matching === asked.name : matching(asked),
    )
    for (const fault of hit) fault.left -= 1
    const struck = hit.find((fault) => fault.left === 0)
    this.faults = this.faults.filter((fault) => fault.left > 0)
    const reply = struck ? undefined : this.replies(asked)
    return reply ? { matching: asked.name, left: 0, apply: (connection, one) => connection.answer(one, reply) } : struck
  }

  private helloTo({ name }: WireMessage): Fault | undefined {
    const reply = this.hello
    if (!reply) return undefined
    return { matching: name, left: 0, apply: (connection, one) => connection.answer(one, reply) }
  }
}

interface Rules {
  blocked(): boolean
  delayMs(): number
  clockAheadMs(): number
  faultOf(command: WireMessage): Fault | undefined
  onAnswered(): ((answered: Answered) => void) | undefined
  closed(): void
}

/** One connection of the driver's and the one to the server that belongs to it. */
class Connection {
  private readonly upward: WireMessage[] = []
  private readonly downward: WireMessage[] = []
  private readonly sent = new Map<number, { command: WireMessage; at: Date }>()
  private cutAt: number | undefined
  private held = false
  private forgotten = false
  private used = false

  constructor(
    private readonly client: Socket,
    private readonly server: Socket,
    private readonly rules: Rules,
  ) {
    this.listen(client, this.upward)
    this.listen(server, this.downward)
    client.on('close', () => {
      // A held command may still be released to the server.
      if (!this.held) server.destroy()
    })
    server.on('close', () => {
      for (const requestId of [...this.sent.keys()]) this.tell(requestId)
      client.destroy()
      rules.closed()
    })
  }

  /** If anything has gone through, nothing does any more, and nothing is closed from here. */
  forget(): void {
    this.forgotten = this.used
  }
  cut(): void {
    this.client.destroy()
    this.server.destroy()
  }
  cutAtReplyTo(command: WireMessage): void {
    this.cutAt = command.requestId
    this.send(command)
  }
  hold(): void {
    this.held = true
  }
  release(command: WireMessage): void {
    this.held = false
    this.send(command)
    if (this.client.destroyed) this.server.end()
  }
  answer(command: WireMessage, reply: Document | Promise<Document>): void {
    void Promise.resolve(reply).then(
      (document) => this.client.destroyed || this.client.write(replyTo(command, document)),
    )
  }

  /** Sends on whatever waits, as far as it may go. */
  flow(): void {
    if (this.forgotten || this.rules.blocked()) return
    this.used ||= this.upward.length > 0
    for (const command of this.upward.splice(0)) {
      const fault = this.rules.faultOf(command)
      if (fault) fault.apply(this, command)
      else this.send(command)
    }
    for (const reply of this.downward.splice(0)) {
      if (reply.responseTo === this.cutAt) this.cut()
      else this.client.write(restamped(reply, this.rules.clockAheadMs()))
    }
  }

  private send(command: WireMessage): void {
    if (this.rules.onAnswered()) this.sent.set(command.requestId, { command, at: systemClock.now() })
    const aheadMs = this.rules.clockAheadMs()
    this.server.write(aheadMs === 0 ? command.bytes : stamped(command, new Date(systemClock.now().getTime() + aheadMs)))
  }

  private tell(requestId: number, reply?: WireMessage): void {
    const asked = this.sent.get(requestId)
    this.sent.delete(requestId)
    if (asked && !BROKEN.has(asked.command.name)) {
      this.rules.onAnswered()?.({ body: asked.command.body(), reply: reply?.body(), sentAt: asked.at })
    }
  }

  private listen(socket: Socket, messages: WireMessage[]): void {
    const cutter = new MessageCutter()
    socket.setNoDelay(true)
    socket.on('error', () => undefined) // 'close' follows
    socket.on('data', (chunk) => {
      const arrived = cutter.push(chunk)
      if (messages === this.downward) for (const reply of arrived) this.tell(reply.responseTo, reply)
      const arrive = () => {
        messages.push(...arrived)
        this.flow()
      }
      const delayMs = this.rules.delayMs()
      if (delayMs > 0) setTimeout(arrive, delayMs)
      else arrive()
    })
  }
}
