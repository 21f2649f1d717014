import type { HeldDocument, RunningStep } from '../../phases/index.js'
import type { Duration } from '../../time/index.js'
import { ApiServer, type ClusterOptions } from '../api/api-server.js'
import { HeldCluster } from './held-cluster.js'
import type { OwnerLifecycle } from './ownership.js'

/** An API server in whose cluster a lifecycle's documents own objects. */
export class Cluster extends ApiServer {
  /** @throws InvalidOptions */
  static of(options: ClusterOptions): Cluster {
    return new Cluster(options)
  }

  /** The same server for a caller that can wait: every request is sent, and may take this long. The caller closes it as well. @internal */
  patient(requestTimeout: Duration): Cluster {
    return new Cluster({ ...this.options, requestTimeout, circuit: undefined })
  }

  /**
   * The access of one lifecycle step to this cluster: writes are fenced, and stop with its lease.
   * @param document with its `lockedBy`, as passed to the handler
   */
  hold(document: HeldDocument, step: RunningStep, lifecycle: OwnerLifecycle): HeldCluster {
    return new HeldCluster(this, document, step, lifecycle)
  }
}
