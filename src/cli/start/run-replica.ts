import type { Settings } from '../../config/index.js'
import { doorbellClient, renewalClient } from '../../database/index.js'
import { observeLocks } from '../../locks/index.js'
import { numbered } from '../../options/index.js'
import { type Logger, Replica, type ReplicaObserver } from '../../phases/index.js'
import type { Workspace } from '../workspace.js'
import { optimizeWhenBusy } from './lean-heap.js'
import { type RunningReplica, replicaOptions, transitionsOf } from './options.js'

/**
 * Runs one replica in this process.
 * @param measured another process asks for its metrics: without a web server, and without the document counts,
 *   which are the same for all replicas. Default: both, when `settings.http` is set
 * @throws what `Replica.prepare` and `bootApp` throw, DatabaseUnreachable; the workspace is closed then
 */
export async function runReplica(
  workspace: Workspace,
  settings: Settings,
  logger: Logger,
  measured = false,
  observers: readonly ReplicaObserver[] = [],
): Promise<RunningReplica> {
  try {
    const running =
      settings.http === undefined
        ? await runAlone(workspace, settings, logger, measured, observers)
        : // Nest is loaded for the web server only.
          await (await import('./app.js')).bootApp(workspace, settings, logger, observers)
    const { replica, metrics } = running
    optimizeWhenBusy(process.env)
    // The lifecycles' module creates its own executors of named locks.
    const unobserved = metrics && observeLocks(metrics.locks)
    const stop = async () => {
      await running.stop()
      unobserved?.()
      await workspace.connection.close()
      const left = replica.status().held
      logger.info(
        `stopped${left > 0 ? `; ${numbered(left, 'document keeps its lease: its step', 'documents keep their leases: their steps')} had not ended` : ''}`,
      )
    }
    return { ...running, stop }
  } catch (error) {
    await workspace.connection.close()
    throw error
  }
}

/** Runs a replica without a web server, and so without Nest: the same work with 23 MB less resident memory (measured). */
async function runAlone(
  { connection, lifecycles }: Workspace,
  settings: Settings,
  logger: Logger,
  measured: boolean,
  observers: readonly ReplicaObserver[],
): Promise<RunningReplica> {
  const { db } = connection
  const metrics = measured
    ? (await import('../../telemetry/index.js')).replicaMetrics({ db, lifecycles, logger, documents: false })
    : undefined
  const shortest = `${Math.min(...lifecycles.map(({ model }) => model.settings.lockTimeoutMs))}ms` as const
  const renewals = await renewalClient(connection, shortest)
  const listening = settings.doorbell === 'off' ? undefined : await doorbellClient(connection, shortest)
  const replica = new Replica({
    db,
    renewalDb: renewals.db(db.databaseName),
    doorbellDb: listening?.db(db.databaseName),
    lifecycles,
    ...(await replicaOptions(settings)),
    logger,
    observer: [...(metrics ? [metrics.observer] : []), ...transitionsOf(settings, connection, logger), ...observers],
  })
  metrics?.watch(replica)
  await replica.start()
  return { replica, http: undefined, metrics, stop: () => replica.stop() }
}
