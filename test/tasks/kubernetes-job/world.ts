import {
  JOB_COLLECTION,
  type KubernetesJobOptions,
  type KubernetesJobSettings,
  kubernetesJobLifecycles,
} from 'phaselock-tasks'
import type { Replica } from '../../../src/index.js'
import type { KubernetesObject } from '../../../src/kubernetes/index.js'
import type { TestCluster } from '../../kubernetes/support/index.js'
import { useSite } from '../pods/site.js'
import { PodWorld, useDocuments } from '../pods/world.js'

const JOB = { apiVersion: 'batch/v1', kind: 'Job' }

/** More than any node has: such a pod stays Pending, so that the test says how it ends, as a kubelet would. */
export const NO_NODE = { resources: { requests: { cpu: '5000' } } }

/** A database with jobs and a namespace for them. */
export class World extends PodWorld {
  replica(options: KubernetesJobSettings & Pick<KubernetesJobOptions, 'wrap'> = {}): Replica {
    const { cluster, namespace } = this.site
    return this.run(kubernetesJobLifecycles({ db: this.db, cluster, namespace, keepFor: '0s', ...options }).all)
  }

  jobs(): Promise<KubernetesObject[]> {
    return this.site.cluster.list(JOB, { namespace: this.site.namespace })
  }

  /** The pod of the only Job, once it is there. */
  onePod(): Promise<KubernetesObject> {
    return this.until(async () => {
      const [pod, ...more] = await this.site.pods()
      if (!pod || more.length > 0) throw new Error(`expected one pod, got ${pod ? more.length + 1 : 0}`)
      return pod
    })
  }

  /** Jobs and pods in the namespace. */
  left(): Promise<string[]> {
    return this.site.left(JOB)
  }
}

/** Gives each test of a `describeWithCluster` an empty world. */
export function useWorld(cluster: () => TestCluster): World {
  const site = useSite(cluster)
  return useDocuments((database) => new World(database, site, JOB_COLLECTION, 'Creating'))
}
