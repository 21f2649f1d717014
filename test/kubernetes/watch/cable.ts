import { connect, createServer, type Server, type Socket } from 'node:net'

/**
 * A cable between a client and an API server: TLS goes through as it is. `cut()` ends all connections and refuses new ones;
 * `freeze()` lets nothing through and closes nothing, on the connections that there are; `mend()` takes new ones again.
 */
export class Cable {
  private readonly ends = new Set<Socket>()
  private isCut = false

  private constructor(
    private readonly server: Server,
    private readonly target: URL,
  ) {}

  /** @param kubeconfig a text with one server; the cable's own is the same through the cable */
  static async lay(kubeconfig: string): Promise<Cable & { kubeconfig: string }> {
    const address = /"?server"?: *['"]?(https:\/\/[^\s'",]+)/.exec(kubeconfig)?.[1]
    if (!address) throw new Error('expected a kubeconfig with the https address of a server')
    const server = createServer()
    const cable = new Cable(server, new URL(address))
    server.on('connection', (socket) => cable.join(socket))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as { port: number }
    return Object.assign(cable, { kubeconfig: kubeconfig.replace(address, `https://127.0.0.1:${port}`) })
  }

  get connections(): number {
    return this.ends.size / 2
  }

  cut(): void {
    this.isCut = true
    for (const end of this.ends) end.destroy()
  }

  freeze(): void {
    for (const end of this.ends) end.unpipe().pause()
  }

  mend(): void {
    this.isCut = false
  }

  async close(): Promise<void> {
    this.cut()
    await new Promise((resolve) => this.server.close(resolve))
  }

  private join(near: Socket): void {
    if (this.isCut) return void near.destroy()
    const far = connect(Number(this.target.port || 443), this.target.hostname)
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.ends.add(one)
      one.on('error', () => undefined)
      one.on('close', () => {
        this.ends.delete(one)
        other.destroy()
      })
      one.pipe(other)
    }
  }
}
