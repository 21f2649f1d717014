import { resourceName } from '../api/discovery.js'
import type { KindRef } from '../api/objects.js'
import type { Cluster } from '../cluster/cluster.js'

/** A kind whose objects can be searched. */
export interface SweptKind extends KindRef {
  /** The resource, for messages and RBAC rules: `certificates.cert-manager.io`. */
  readonly resource: string
  readonly namespaced: boolean
}

/** A part of a cluster that wasn't searched. */
export interface NotLookedAt {
  /** A resource (`secrets`), or a group version that doesn't answer (`metrics.k8s.io/v1beta1`). */
  readonly what: string
  /** The message of the error: a right that is missing, or a server that couldn't be reached. */
  readonly why: string
}

/**
 * All kinds of a cluster that can be listed and deleted, each once, in its group's preferred version if that has it. A group whose
 * server is unreachable is returned in `notLookedAt`.
 * @throws Unavailable, KubernetesError if the cluster itself can't be reached
 */
export async function sweptKinds(cluster: Cluster): Promise<{ kinds: SweptKind[]; notLookedAt: NotLookedAt[] }> {
  const groups = await cluster.apiGroups()
  const versions = groups.flatMap(({ versions: all, preferredVersion: { groupVersion } }) => [
    ...new Set([groupVersion, ...all.map((version) => version.groupVersion)]),
  ])
  const kinds = new Map<string, SweptKind>()
  const notLookedAt: NotLookedAt[] = []
  for (const apiVersion of ['v1', ...versions]) {
    try {
      for (const { name, kind, namespaced, verbs = [] } of await cluster.resourcesOf(apiVersion)) {
        const resource = resourceName({ apiVersion }, name)
        // Names with a slash are subresources.
        const isSwept = !name.includes('/') && verbs.includes('list') && verbs.includes('delete')
        if (isSwept && !kinds.has(resource)) kinds.set(resource, { apiVersion, kind, namespaced, resource })
      }
    } catch (error) {
      if (apiVersion === 'v1') throw error
      await cluster.reach()
      notLookedAt.push({ what: apiVersion, why: (error as Error).message })
    }
  }
  return { kinds: [...kinds.values()], notLookedAt }
}
