import { connect, createServer, type Server, type Socket } from 'node:net'
import { MessageCutter } from '../support/wire-messages.ts'

/*
 * Gives routers (`mongos`) clocks of their own: stands between them and a shard. A router sends its time with each command that reads
 * `$$NOW` (`runtimeConstants.localNow`), and the shard goes by it. One with test commands names its port in its handshake, as for
 * MongoDB's own mongobridge, so what it sends is told from what others send.
 *
 * Not reached: explains and what the routers tell of their own time in `hello`. Nothing in src decides by these.
 */

const NAMES_ROUTER = /hostInfo\0.{4}[^\0]*:(\d+)\0/s
const LOCAL_NOW = Buffer.from('\tlocalNow\0', 'latin1')
const FLAGS_AT = 16
const CHECKSUM_PRESENT = 1
const CHECKSUM_BYTES = 4
const OP_MSG = 2013

export class RouterClocks {
  /** How many times were moved. */
  moved = 0
  private readonly sockets = new Set<Socket>()
  private readonly server: Server
  private readonly aheadMs: ReadonlyMap<number, number>
  readonly host: string

  private constructor(server: Server, aheadMs: ReadonlyMap<number, number>) {
    this.server = server
    this.aheadMs = aheadMs
    this.host = `127.0.0.1:${(server.address() as { port: number }).port}`
  }

  /** @param aheadMs by the port of the router */
  static async start(target: string, aheadMs: ReadonlyMap<number, number>): Promise<RouterClocks> {
    const [name = '', port] = target.split(':')
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const clocks = new RouterClocks(server, aheadMs)
    server.on('connection', (from) => clocks.join(from, connect(Number(port), name)))
    return clocks
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy()
    await new Promise((resolve) => this.server.close(resolve))
  }

  private join(from: Socket, to: Socket): void {
    const cutter = new MessageCutter()
    let router: number | undefined
    from.on('data', (chunk) => {
      for (const { bytes } of cutter.push(chunk)) {
        router ??= Number(NAMES_ROUTER.exec(bytes.toString('latin1'))?.[1]) || undefined
        to.write(this.moveTime(bytes, router ?? 0))
      }
    })
    to.pipe(from)
    for (const [one, other] of [
      [from, to],
      [to, from],
    ] as const) {
      this.sockets.add(one)
      one.setNoDelay(true)
      one.on('error', () => undefined) // 'close' follows
      one.on('close', () => {
        this.sockets.delete(one)
        other.destroy()
      })
    }
  }

  private moveTime(bytes: Buffer, router: number): Buffer {
    const aheadMs = this.aheadMs.get(router) ?? 0
    const at = aheadMs === 0 || bytes.readInt32LE(12) !== OP_MSG ? -1 : bytes.indexOf(LOCAL_NOW)
    if (at < 0) return bytes
    this.moved += 1
    const flags = bytes.readInt32LE(FLAGS_AT)
    const hasChecksum = (flags & CHECKSUM_PRESENT) !== 0
    const moved = Buffer.from(hasChecksum ? bytes.subarray(0, -CHECKSUM_BYTES) : bytes)
    moved.writeInt32LE(moved.length, 0)
    moved.writeInt32LE(flags & ~CHECKSUM_PRESENT, FLAGS_AT)
    const valueAt = at + LOCAL_NOW.length
    moved.writeBigInt64LE(moved.readBigInt64LE(valueAt) + BigInt(aheadMs), valueAt)
    return moved
  }
}
