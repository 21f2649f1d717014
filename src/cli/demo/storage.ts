import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'

/** The storage of the demo: a server that makes buckets, and that goes down and comes back. */
export class Storage {
  /** The names of its buckets. */
  readonly buckets = new Set<string>()
  private server: Server | undefined
  private port = 0

  /** `http://127.0.0.1:<port>`, the same whenever it is up. */
  get url(): string {
    return `http://127.0.0.1:${this.port}`
  }

  async up(): Promise<void> {
    const server = createServer((request, response) => {
      this.buckets.add(request.url!.slice(1))
      request.resume()
      response.writeHead(201).end()
    })
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(this.port, '127.0.0.1', resolve)
    })
    this.port = (server.address() as AddressInfo).port
    this.server = server
  }

  /** Refuses connections from now on. */
  async down(): Promise<void> {
    const { server } = this
    this.server = undefined
    const closed = new Promise((resolve) => (server ? server.close(resolve) : resolve(undefined)))
    server?.closeAllConnections()
    await closed
  }
}
