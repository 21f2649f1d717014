import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { request as requestHttps } from 'node:https'
import type { AddressInfo } from 'node:net'
import { gate } from '../../support/thing.js'
import type { TestAccount } from './test-cluster.js'

interface Held {
  readonly method: string
  /** The end of its path. */
  readonly path: string
  /** Resolves when the request is here; it is not sent on before `release()`. */
  readonly arrived: Promise<void>
  release(): void
  /** Resolves when the API server has answered it. */
  readonly answered: Promise<void>
}

/**
 * Stands between one client and the API server, and can hold a request on its way: what is sent just before a process is paused,
 * or hangs in the network, arrives late.
 */
export class HoldingProxy {
  /** What has come, as `PATCH /api/v1/...`. */
  readonly requests: string[] = []
  private readonly waiting: (Held & { open(): void; done(): void; readonly released: Promise<void> })[] = []

  private constructor(
    private readonly server: Server,
    private readonly target: { readonly server: URL; readonly ca: Buffer },
    readonly kubeconfigText: string,
  ) {}

  static async before({ kubeconfigText }: TestAccount): Promise<HoldingProxy> {
    const config = JSON.parse(kubeconfigText)
    const { cluster } = config.clusters[0]
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    const target = {
      server: new URL(cluster.server),
      ca: Buffer.from(cluster['certificate-authority-data'] ?? '', 'base64'),
    }
    config.clusters[0].cluster = { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true }
    const proxy = new HoldingProxy(server, target, JSON.stringify(config))
    server.on('request', (request, response) => void proxy.pass(request, response))
    return proxy
  }

  /** Holds the next request with this method, and a path that ends so. */
  hold(method: 'GET' | 'PATCH' | 'DELETE', path = ''): Held {
    const [arrived, released, answered] = [gate(), gate(), gate()]
    const held = {
      method,
      path,
      arrived: arrived.wait,
      released: released.wait,
      answered: answered.wait,
      release: released.open,
      open: arrived.open,
      done: answered.open,
    }
    this.waiting.push(held)
    return held
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections()
    await new Promise((resolve) => this.server.close(resolve))
  }

  private async pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const path = request.url!.replace(/\?.*$/, '')
    this.requests.push(`${request.method} ${path}`)
    const held = this.waiting.find((one) => one.method === request.method && path.endsWith(one.path))
    if (held) {
      this.waiting.splice(this.waiting.indexOf(held), 1)
      held.open()
      await held.released
    }
    const { server, ca } = this.target
    const { method, url, headers } = request
    const to = { host: server.hostname, port: server.port, ca, method, path: url, headers }
    const onward = requestHttps(to, (answer) => {
      response.writeHead(answer.statusCode!, answer.headers)
      answer.pipe(response)
      answer.on('end', () => held?.done())
    })
    onward.on('error', () => response.destroy())
    onward.end(Buffer.concat(chunks))
  }
}
