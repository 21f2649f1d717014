import { connect, createServer, type Server, type Socket } from 'node:net'

/** Sits between a client and a server of any protocol and, where told so, cuts the connection instead of bringing a reply. */
export class ReplyCutter {
  private cut: { text: string; struck: () => void } | undefined
  private readonly sockets = new Set<Socket>()

  private constructor(
    private readonly server: Server,
    /** The server's URL, through this. */
    readonly url: string,
  ) {}

  static async start(target: string): Promise<ReplyCutter> {
    const url = new URL(target)
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const port = Number(url.port)
    url.port = String((server.address() as { port: number }).port)
    const cutter = new ReplyCutter(server, url.href)
    server.on('connection', (client) => cutter.connected(client, connect(port, url.hostname)))
    return cutter
  }

  /** The next request with this text is executed, and its reply never arrives. Resolves when that has happened. */
  cutReplyTo(text: string): Promise<void> {
    return new Promise((struck) => {
      this.cut = { text, struck }
    })
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy()
    await new Promise((resolve) => this.server.close(resolve))
  }

  private connected(client: Socket, server: Socket): void {
    let cutting: { struck: () => void } | undefined
    for (const [socket, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.sockets.add(socket)
      socket.on('error', () => undefined) // 'close' follows
      socket.on('close', () => {
        this.sockets.delete(socket)
        other.destroy()
      })
    }
    client.on('data', (sent) => {
      if (this.cut && sent.includes(this.cut.text)) {
        cutting = this.cut
        this.cut = undefined
      }
      server.write(sent)
    })
    server.on('data', (reply) => {
      if (!cutting) return void client.write(reply)
      client.destroy()
      cutting.struck()
    })
  }
}
