import { connect, createServer, type Server, type Socket } from 'node:net'
import type { Document } from 'mongodb'
import { EXACTLY, MessageCutter, replyTo, type WireMessage, withBody } from '../../test/support/wire-messages.ts'
import type { Rewrite } from '../broken/rewrites.ts'

const HANDSHAKES = new Set(['hello', 'ismaster', 'isMaster', 'ping'])
const HOST_INFO = Buffer.from('\x02hostInfo\0', 'latin1')
const NOT_PRIMARY = {
  ok: 0,
  code: 10107,
  codeName: 'NotWritablePrimary',
  errmsg: 'not writable primary (a fault of the demo)',
}

export type ProxyMode =
  | { readonly kind: 'pass' }
  /** Nothing passes in either direction, and nothing is closed. */
  | { readonly kind: 'blackhole' }
  /** Everything takes longer, in both directions. */
  | { readonly kind: 'slow'; readonly ms: number }
  /** Every command except handshakes is refused as a secondary would. */
  | { readonly kind: 'notPrimary' }

const PASS: ProxyMode = { kind: 'pass' }

/** Who opened a connection: a member of a replica set by the port that it listens on (`:27018`), all others by their address. */
export type Peer = string

export interface DatabaseProxyOptions {
  /** Of the server. Default 127.0.0.1. */
  readonly host?: string
  /** Rewrites each command but handshakes. Default: all go through as they are. */
  readonly rewrite?: Rewrite
}

/** A proxy between a server of the run and its clients, which produces the database's faults and rewrites commands. Not for TLS or compression. */
export class DatabaseProxy {
  private modeOf: (peer: Peer) => ProxyMode = () => PASS
  private readonly pipes = new Set<Pipe>()
  private readonly server: Server
  readonly port: number

  private constructor(server: Server) {
    this.server = server
    this.port = (server.address() as { port: number }).port
  }

  static async start(
    targetPort: number,
    { host = '127.0.0.1', rewrite }: DatabaseProxyOptions = {},
  ): Promise<DatabaseProxy> {
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const proxy = new DatabaseProxy(server)
    server.on('connection', (client) => {
      const pipe = new Pipe(
        client,
        connect(targetPort, host),
        (peer) => proxy.modeOf(peer),
        () => proxy.pipes.delete(pipe),
        rewrite,
      )
      proxy.pipes.add(pipe)
    })
    return proxy
  }

  set(mode: ProxyMode): void {
    this.setEach(() => mode)
  }

  /** For those whom it concerns; a new connection counts as any other client's until it has said who it is. */
  setEach(modeOf: (peer: Peer) => ProxyMode): void {
    this.modeOf = modeOf
    for (const pipe of this.pipes) pipe.flow()
  }

  async close(): Promise<void> {
    for (const pipe of this.pipes) pipe.cut()
    await new Promise((resolve) => this.server.close(resolve))
  }
}

/** A client's connection, and the connection to the server that belongs to it. */
class Pipe {
  private up: WireMessage[] = []
  private down: Buffer[] = []
  private readonly commands = new MessageCutter()
  /** By the command that each answers. */
  private readonly replies = new Map<number, (reply: Document) => Document>()
  private delayed = 0
  private delayMs = 0
  private readonly client: Socket
  private readonly server: Socket
  private readonly modeOf: (peer: Peer) => ProxyMode
  private readonly rewrite: Rewrite | undefined
  private peer: Peer
  private isFirst = true

  constructor(
    client: Socket,
    server: Socket,
    modeOf: (peer: Peer) => ProxyMode,
    gone: () => void,
    rewrite: Rewrite | undefined,
  ) {
    this.client = client
    this.server = server
    this.modeOf = modeOf
    this.rewrite = rewrite
    this.peer = client.remoteAddress ?? ''
    for (const socket of [client, server]) {
      socket.setNoDelay(true)
      socket.on('error', () => undefined) // 'close' follows
      socket.on('close', () => {
        this.cut()
        gone()
      })
    }
    client.on('data', (chunk) => {
      for (const message of this.messages(chunk)) this.later(() => this.up.push(message))
    })
    const replies = new MessageCutter()
    server.on('data', (chunk) => {
      // Cutting costs time, and most proxies have no use for whole replies.
      const parts = rewrite ? replies.push(chunk).map((reply) => this.rewrittenReply(reply)) : [chunk]
      for (const part of parts) this.later(() => this.down.push(part))
    })
  }

  cut(): void {
    this.client.destroy()
    this.server.destroy()
  }

  flow(): void {
    const { kind } = this.modeOf(this.peer)
    if (kind === 'blackhole') return
    for (const message of this.up.splice(0)) {
      if (kind === 'notPrimary' && isCommand(message)) this.client.write(replyTo(message, NOT_PRIMARY))
      else this.send(message)
    }
    for (const chunk of this.down.splice(0)) this.client.write(chunk)
  }

  private send(message: WireMessage): void {
    const rewritten = isCommand(message) ? this.rewrite?.(message.body(EXACTLY)) : undefined
    if (!rewritten) this.server.write(message.bytes)
    else if ('answer' in rewritten) this.client.write(replyTo(message, rewritten.answer))
    else {
      if (rewritten.reply) this.replies.set(message.requestId, rewritten.reply)
      this.server.write(withBody(message, rewritten.command))
    }
  }

  private rewrittenReply(reply: WireMessage): Buffer {
    const change = this.replies.get(reply.responseTo)
    this.replies.delete(reply.responseTo)
    return change ? withBody(reply, change(reply.body(EXACTLY))) : reply.bytes
  }

  /** In the order of arrival, even if a slow period has just ended. */
  private later(arrive: () => void): void {
    const mode = this.modeOf(this.peer)
    const now = () => {
      this.delayed -= 1
      arrive()
      this.flow()
    }
    this.delayed += 1
    if (mode.kind === 'slow') this.delayMs = mode.ms
    if (mode.kind === 'slow' || this.delayed > 1) setTimeout(now, this.delayMs)
    else now()
  }

  /** Whole messages; an incomplete one waits for the rest. */
  private messages(chunk: Buffer): WireMessage[] {
    const whole = this.commands.push(chunk)
    const [first] = whole
    if (this.isFirst && first) {
      this.isFirst = false
      this.peer = memberOf(first.bytes) ?? this.peer
    }
    return whole
  }
}

/** By the handshake's `hostInfo`, which a server sends where its test commands are enabled (MongoDB's own mongobridge needs it as well). */
function memberOf(handshake: Buffer): Peer | undefined {
  const field = handshake.indexOf(HOST_INFO)
  if (field < 0) return undefined
  const at = field + HOST_INFO.length
  const host = handshake.toString('latin1', at + 4, at + 4 + handshake.readInt32LE(at) - 1)
  return host.slice(host.lastIndexOf(':'))
}

const isCommand = ({ name }: WireMessage): boolean => name !== '' && !HANDSHAKES.has(name)
