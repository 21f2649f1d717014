import type { ObjectId } from 'mongodb'
import { INSTANCE_COLLECTION, type InstanceOptions, type InstanceSettings, instanceLifecycles } from 'phaselock-tasks'
import type { Replica } from '../../../src/index.js'
import type { TestCluster } from '../../kubernetes/support/index.js'
import { useSite } from '../pods/site.js'
import { PodWorld, useDocuments } from '../pods/world.js'

type More = InstanceSettings & Pick<InstanceOptions, 'wrap' | 'podSecurity' | 'isOrphan'>

/** A database with instances and a namespace for their objects. */
export class World extends PodWorld {
  /** A replica with lifecycles of its own, as in a process of its own. */
  replica(options: More = {}): Replica {
    const { cluster, namespace } = this.site
    return this.run(instanceLifecycles({ db: this.db, cluster, namespace, keepFor: '0s', ...options }).all)
  }

  deployment(id: ObjectId) {
    return this.site.cluster.get(this.site.ref('apps/v1', 'Deployment', `instance-${id}`))
  }

  service(id: ObjectId) {
    return this.site.cluster.get(this.site.ref('v1', 'Service', `instance-${id}`))
  }

  /** Deployments, Services and pods in the namespace. */
  left(): Promise<string[]> {
    return this.site.left({ apiVersion: 'apps/v1', kind: 'Deployment' }, { apiVersion: 'v1', kind: 'Service' })
  }
}

/** Gives each test of a `describeWithCluster` an empty world. */
export function useWorld(cluster: () => TestCluster): World {
  const site = useSite(cluster)
  return useDocuments((database) => new World(database, site, INSTANCE_COLLECTION, 'Starting'))
}
