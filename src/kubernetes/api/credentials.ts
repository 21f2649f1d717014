import { Agent, type RequestOptions } from 'node:https'
import type { KubeConfig } from '@kubernetes/client-node'

/**
 * Where a cluster is and who asks it: a kubeconfig as a string or a file; the account of the pod that this process runs in; or
 * what kubectl would use (KUBECONFIG, `~/.kube/config`, then the pod's account).
 */
export type KubeconfigSource = string | { readonly file: string } | 'inCluster' | 'default'

/**
 * Reads a kubeconfig with the official client, which is loaded when first needed, and gives each request its credentials:
 * token files are read again every minute, exec plugins are asked again when their credentials have expired.
 */
export class Credentials {
  /** One agent for all: connections are kept per server and credentials. */
  private readonly agent = new Agent({ keepAlive: true })
  private loading: Promise<KubeConfig> | undefined

  constructor(private readonly source: KubeconfigSource) {}

  /** The server's base address, and TLS and headers for a request to it; tokens are read anew by their own rules. */
  async access(): Promise<{ readonly server: URL; readonly options: RequestOptions }> {
    this.loading ??= load(this.source).catch((error) => {
      this.loading = undefined
      throw error
    })
    const config = await this.loading
    const server = config.getCurrentCluster()?.server
    if (!server) throw new Error('the kubeconfig has no current context with a cluster')
    const options: RequestOptions = {}
    await config.applyToHTTPSOptions(options).catch((error) => {
      // The parser's message would quote what the plugin gave.
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

/** A parser quotes the lines around what it can't read, and a kubeconfig contains tokens: its messages end up in documents and logs. */
function withoutQuotation(error: unknown): unknown {
  const { name, reason, mark } = error as { name?: string; reason?: string; mark?: { line?: number } }
  if (name !== 'YAMLException') return error
  const line = mark?.line === undefined ? '' : `, line ${mark.line + 1}`
  return new Error(`the kubeconfig isn't valid YAML: ${reason ?? 'it could not be read'}${line}`)
}
