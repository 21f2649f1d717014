/** One replica of the Kubernetes demo: fleet.ts directs it over the IPC channel. */
import type { Db } from 'mongodb'
import { instanceLifecycles } from 'phaselock-tasks'
import { connectDatabase, renewalClient } from '../../dist/database/index.js'
import { Cluster, singleRegion } from '../../dist/kubernetes/index.js'
import { BoundLifecycle, type RunnableLifecycle } from '../../dist/phases/index.js'
import { runtimeDomainLifecycles } from '../../dist/tasks/index.js'
import type { Duration } from '../../dist/time/index.js'
import { ReplicaLife } from '../proof/replica-life.ts'
import { ISSUER } from './playground.ts'

const CONCURRENCY = 16
const GRACE_MS = 10_000
const CONNECTED_WITHIN = '1m'

/** The configuration of a replica's process: a kubeconfig and a connection string hold secrets. */
export interface KubernetesReplicaConfig {
  readonly name: string
  readonly uri: string
  readonly database: string
  /** The text of a kubeconfig. */
  readonly kubeconfig: string
  /** The region's rule. */
  readonly namespaceRule: string
  readonly lockTimeoutMs: number
  /** Whether it watches what its documents wait for; otherwise it looks again at the end of their pauses. */
  readonly watches: boolean
}

new ReplicaLife<KubernetesReplicaConfig>(async (config, life) => {
  const { uri, database, lockTimeoutMs } = config
  const connection = await connectDatabase({
    uri,
    database,
    lockTimeout: `${lockTimeoutMs}ms`,
    timeout: CONNECTED_WITHIN,
  })
  const renewals = await renewalClient(connection, `${lockTimeoutMs}ms`)
  const options = {
    db: connection.db,
    lifecycles: lifecycles(config, connection.db),
    name: config.name,
    renewalDb: renewals.db(database),
    grace: `${GRACE_MS}ms` as const,
    observer: {
      stepEnded: ({ lifecycle, to, phase, id }: { lifecycle: string; to: string; phase: string; id: unknown }) => {
        if (phase !== to) life.tell({ kind: 'moved', lifecycle, id: String(id), to })
      },
    },
  }
  await life.live(options, () => connection.close())
})

function lifecycles(config: KubernetesReplicaConfig, db: Db): RunnableLifecycle[] {
  const { kubeconfig, namespaceRule: namespace, lockTimeoutMs, watches } = config
  const cluster = Cluster.of({ name: 'demo', kubeconfig })
  const regions = singleRegion('demo', cluster, {
    namespace,
    gateway: { domain: 'demo.example.org', tls: { enabled: true, issuer: ISSUER } },
  })
  const settings = { db, regions, concurrency: CONCURRENCY, lockTimeout: `${lockTimeoutMs}ms` satisfies Duration }
  const all = [...runtimeDomainLifecycles(settings).all, ...instanceLifecycles(settings).all]
  // The same handlers with nothing running alongside.
  return watches ? all : all.map(({ model, handlers }) => new BoundLifecycle(model, handlers))
}
