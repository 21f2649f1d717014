import { connect, createServer, type Server, type Socket } from 'node:net'
import { BSON } from 'mongodb'

const OP_MSG = 2013
const HEADER_BYTES = 16
const FIRST_FIELD_NAME_AT = 26
const HANDSHAKES = new Set(['hello', 'ismaster', 'isMaster', 'ping'])
const HOST_INFO = Buffer.from('\x02hostInfo\0', 'latin1')
const NOT_PRIMARY = BSON.serialize({
  ok: 0,
  code: 10107,
  codeName: 'NotWritablePrimary',
  errmsg: 'not writable primary (a fault of the demo)',
})

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

/** A proxy between a server of the run and its clients, which produces the database's faults. Not for TLS. */
export class DatabaseProxy {
  private modeOf: (peer: Peer) => ProxyMode = () => PASS
  private readonly pipes = new Set<Pipe>()
  private readonly server: Server
  readonly port: number

  private constructor(server: Server) {
    this.server = server
    this.port = (server.address() as { port: number }).port
  }

  static async start(targetPort: number): Promise<DatabaseProxy> {
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const proxy = new DatabaseProxy(server)
    server.on('connection', (client) => {
      const pipe = new Pipe(
        client,
        connect(targetPort, '127.0.0.1'),
        (peer) => proxy.modeOf(peer),
        () => proxy.pipes.delete(pipe),
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
  private up: Buffer[] = []
  private down: Buffer[] = []
  private rest: Buffer = Buffer.alloc(0)
  private delayed = 0
  private delayMs = 0
  private readonly client: Socket
  private readonly server: Socket
  private readonly modeOf: (peer: Peer) => ProxyMode
  private peer: Peer
  private isFirst = true

  constructor(client: Socket, server: Socket, modeOf: (peer: Peer) => ProxyMode, gone: () => void) {
    this.client = client
    this.server = server
    this.modeOf = modeOf
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
    server.on('data', (chunk) => this.later(() => this.down.push(chunk)))
  }

  cut(): void {
    this.client.destroy()
    this.server.destroy()
  }

  flow(): void {
    const { kind } = this.modeOf(this.peer)
    if (kind === 'blackhole') return
    for (const message of this.up.splice(0)) {
      if (kind === 'notPrimary' && isCommand(message)) this.client.write(notPrimary(message))
      else this.server.write(message)
    }
    for (const chunk of this.down.splice(0)) this.client.write(chunk)
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
  private messages(chunk: Buffer): Buffer[] {
    this.rest = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk])
    const whole: Buffer[] = []
    while (this.rest.length >= HEADER_BYTES && this.rest.length >= this.rest.readInt32LE(0)) {
      const length = this.rest.readInt32LE(0)
      whole.push(this.rest.subarray(0, length))
      this.rest = this.rest.subarray(length)
    }
    const [first] = whole
    if (this.isFirst && first) {
      this.isFirst = false
      this.peer = memberOf(first) ?? this.peer
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

function isCommand(message: Buffer): boolean {
  if (message.readInt32LE(12) !== OP_MSG || message[20] !== 0) return false
  const end = message.indexOf(0, FIRST_FIELD_NAME_AT)
  return !HANDSHAKES.has(message.toString('latin1', FIRST_FIELD_NAME_AT, end))
}

function notPrimary(request: Buffer): Buffer {
  const reply = Buffer.alloc(21 + NOT_PRIMARY.length)
  reply.writeInt32LE(reply.length, 0)
  reply.writeInt32LE(request.readInt32LE(4) + 1, 4)
  reply.writeInt32LE(request.readInt32LE(4), 8)
  reply.writeInt32LE(OP_MSG, 12)
  reply.set(NOT_PRIMARY, 21)
  return reply
}
