import { readFile } from 'node:fs/promises'
import type { Cluster } from '../cluster.js'
import type { KubeconfigSource } from '../credentials.js'
import type { ClusterSource } from './region-document.js'

/** A kubeconfig as it is now. */
export interface FoundKubeconfig {
  readonly source: KubeconfigSource
  /** Differs if what was found differs. */
  readonly version: string
}

/** What is wrong with a reference to a kubeconfig: the reason that its documents wait with. */
export class NoKubeconfig extends Error {
  override readonly name = 'NoKubeconfig'
}

/**
 * Reads the kubeconfig that a region refers to.
 * @param home the cluster whose Secrets hold kubeconfigs
 * @throws NoKubeconfig, and what a request to the home cluster may throw
 */
export async function findKubeconfig(source: ClusterSource, home: () => Cluster): Promise<FoundKubeconfig> {
  if (source.inCluster) return { source: 'inCluster', version: 'inCluster' }
  if (source.kubeconfigFile !== undefined) {
    const file = source.kubeconfigFile
    const text = await readFile(file, 'utf8').catch((cause) => {
      throw new NoKubeconfig(`expected a kubeconfig in the file ${file}, it can't be read: ${cause.message}`, { cause })
    })
    // By its path and not as a string: what it names relative to itself is found.
    return { source: { file }, version: text }
  }
  const { namespace, name, key } = source.kubeconfig!.secret
  const secret = await home().get({ apiVersion: 'v1', kind: 'Secret', metadata: { namespace, name } })
  if (!secret) throw new NoKubeconfig(`expected the Secret ${namespace}/${name} to be there, it isn't`)
  const data = (secret['data'] ?? {}) as Readonly<Record<string, string>>
  const encoded = data[key]
  if (encoded === undefined) {
    const keys = Object.keys(data).join(', ') || 'none'
    throw new NoKubeconfig(`expected the Secret ${namespace}/${name} to have the key '${key}', it has ${keys}`)
  }
  const text = Buffer.from(encoded, 'base64').toString('utf8')
  return { source: text, version: text }
}
