import { readFile } from 'node:fs/promises'
import type { Cluster } from '../cluster.js'
import type { KubeconfigSource } from '../credentials.js'
import type { ClusterSource } from './region-document.js'

/** A kubeconfig as it is now, with a version that differs if what was found differs; or why there is none, for the documents that wait. */
type Found = { readonly source: KubeconfigSource; readonly version: string } | { readonly problem: string }

/**
 * Reads the kubeconfig that a region refers to.
 * @param home the cluster whose Secrets hold kubeconfigs
 * @throws what a request to the home cluster may throw
 */
export async function findKubeconfig(source: ClusterSource, home: () => Cluster): Promise<Found> {
  if (source.inCluster) return { source: 'inCluster', version: 'inCluster' }
  if (source.kubeconfigFile !== undefined) {
    const file = source.kubeconfigFile
    // By its path and not as a string: what it names relative to itself is found.
    return readFile(file, 'utf8').then(
      (version) => ({ source: { file }, version }),
      ({ message }) => ({ problem: `expected a kubeconfig in the file ${file}, which can't be read: ${message}` }),
    )
  }
  const { namespace, name, key } = source.kubeconfig!.secret
  const secret = await home().get({ apiVersion: 'v1', kind: 'Secret', metadata: { namespace, name } })
  if (!secret) return { problem: `expected the Secret ${namespace}/${name}, which doesn't exist` }
  const data = (secret['data'] ?? {}) as Readonly<Record<string, string>>
  const encoded = data[key]
  if (encoded === undefined) {
    const keys = Object.keys(data).join(', ') || 'none'
    return { problem: `expected the Secret ${namespace}/${name} to have the key '${key}', got ${keys}` }
  }
  const text = Buffer.from(encoded, 'base64').toString('utf8')
  return { source: text, version: text }
}
