import { Agent, type RequestOptions } from 'node:https'
import type { KubeConfig } from '@kubernetes/client-node'
import { once } from '../../concurrency/index.js'

/**
 * The location of a cluster and the account to use: a kubeconfig as a string or a file; the account of the pod of this process; or
 * kubectl's own choice (KUBECONFIG, `~/.kube/config`, then the pod's account).
 */
export type KubeconfigSource = string | { readonly file: string } | 'inCluster' | 'default'

/**
 * Reads a kubeconfig with the official client, which is loaded when first needed, and adds credentials to each request:
 * token files are read again every minute, exec plugins run again when their credentials have expired.
 */
export class Credentials {
  /** One agent for all requests: it keeps connections per server and credentials. */
  private readonly agent = new Agent({ keepAlive: true })
  private readonly loaded = once(() => load(this.source))

  constructor(private readonly source: KubeconfigSource) {}

  /** The server's base address, and TLS options and headers for a request to it; tokens are refreshed by their own rules. */
  async access(): Promise<{ readonly server: URL; readonly options: RequestOptions }> {
    const config = await this.loaded()
    const server = config.getCurrentCluster()?.server
    if (!server) throw new Error('the kubeconfig has no current context with a cluster')
    const options: RequestOptions = {}
    await config.applyToHTTPSOptions(options).catch((error) => {
      // The parser's message would quote the plugin's output.
      throw error instanceof SyntaxError
        ? new Error("the credentials plugin of the kubeconfig didn't give JSON")
        : error
    })
    // The client's own agent opens a connection for each request and presents a certificate only once; a proxy needs it.
    if (!config.getCurrentCluster()?.proxyUrl && server.startsWith('https:')) options.agent = this.agent
    return { server: new URL(server), options }
  }

  /** Closes idle connections. */
  close(): void {
    this.agent.destroy()
  }
}

export const loadClient = () => import('@kubernetes/client-node')

async function load(source: KubeconfigSource): Promise<KubeConfig> {
  const { KubeConfig: Config } = await loadClient()
  const config = new Config()
  try {
    if (source === 'default') config.loadFromDefault()
    else if (source === 'inCluster') config.loadFromCluster()
    else if (typeof source === 'string') config.loadFromString(source)
    else config.loadFromFile(source.file)
  } catch (error) {
    throw withoutQuotation(error)
  }
  return config
}

/** Removes the lines that a parser quotes from a kubeconfig it can't read. They contain tokens, and messages end up in documents and logs. */
function withoutQuotation(error: unknown): unknown {
  const { name, reason, mark } = error as { name?: string; reason?: string; mark?: { line?: number } }
  if (name !== 'YAMLException') return error
  const line = mark?.line === undefined ? '' : `, line ${mark.line + 1}`
  return new Error(`the kubeconfig isn't valid YAML: ${reason ?? 'it could not be read'}${line}`)
}
