/** One replica of the demo with Kubernetes, as a process of its own: started by crew.ts, told what to do over the IPC channel. */
import type { Db } from 'mongodb'
import { connectDatabase, renewalClient } from '../../../database/index.js'
import { Cluster, singleRegion } from '../../../kubernetes/index.js'
import { BoundLifecycle, Replica, type RunnableLifecycle } from '../../../phases/index.js'
import { instanceLifecycles, runtimeDomainLifecycles } from '../../../tasks/index.js'
import type { Duration } from '../../../time/index.js'
import { ReplicaLife } from '../replica-life.js'
import type { CreatedNews, KubernetesReplicaConfig } from './messages.js'
import { ISSUER } from './playground.js'

const CONCURRENCY = 16
const GRACE_MS = 10_000

const life = new ReplicaLife<CreatedNews>()
process.on('message', (config: KubernetesReplicaConfig) => void run(config).catch(life.failed))
// The demo has died: nobody is left behind.
process.on('disconnect', () => process.exit(1))

async function run(config: KubernetesReplicaConfig): Promise<void> {
  const { uri, database, lockTimeoutMs } = config
  const connection = await connectDatabase({ uri, database, lockTimeoutMs, timeoutMs: 10_000 })
  const renewals = await renewalClient(connection, lockTimeoutMs)
  const replica = new Replica({
    db: connection.db,
    lifecycles: lifecycles(config, connection.db),
    name: config.name,
    renewalDb: renewals.db(database),
    graceMs: GRACE_MS,
    logger: life.logger,
    observer: {
      stepEnded: ({ lifecycle, to, phase, id }) => {
        if (lifecycle === 'runtime-domain' && to === 'Created' && phase !== to)
          life.tell({ kind: 'created', id: String(id) })
      },
    },
  })
  await life.live(replica, () => connection.close())
}

function lifecycles(config: KubernetesReplicaConfig, db: Db): RunnableLifecycle[] {
  const { kubeconfig, namespaceRule: namespace, lockTimeoutMs, watches } = config
  const cluster = Cluster.of({ name: 'demo', kubeconfig })
  const regions = singleRegion('demo', cluster, {
    namespace,
    gateway: { domain: 'demo.example.org', tls: { enabled: true, issuer: ISSUER } },
  })
  const settings = { db, regions, concurrency: CONCURRENCY, lockTimeout: `${lockTimeoutMs}ms` satisfies Duration }
  const all = [...runtimeDomainLifecycles(settings).all, ...instanceLifecycles(settings).all]
  // The same handlers with nothing beside them.
  return watches ? all : all.map(({ model, handlers }) => new BoundLifecycle(model, handlers))
}
