import type { Settings } from '../../config/index.js'
import { doorbellClient, renewalClient } from '../../database/index.js'
import { observeLocks } from '../../locks/index.js'
import { numbered } from '../../options/index.js'
import { type Logger, Replica, type ReplicaObserver } from '../../phases/index.js'
import type { Workspace } from '../workspace.js'
import { hasMetrics, serveHttp } from './http/index.js'
import type { HttpServer } from './http/server.js'
import { optimizeWhenBusy } from './lean-heap.js'
import { type RunningReplica, replicaOptions, transitionsOf } from './options.js'

/**
 * Runs one replica in this process, and beside it the web server if `settings.http` is set.
 * @param measured another process asks for its metrics: without the document counts, which are the same for all replicas. Default: it has metrics,
 *   with these counts, when `settings.http` is set
 * @throws what `Replica.start` throws, DatabaseUnreachable, CliError when the port is taken; the workspace is closed then
 */
export async function runReplica(
  workspace: Workspace,
  settings: Settings,
  logger: Logger,
  measured = false,
  observers: readonly ReplicaObserver[] = [],
): Promise<RunningReplica> {
  const { connection, lifecycles } = workspace
  const { db } = connection
  let server: HttpServer | undefined
  try {
    const metrics =
      measured || (settings.http !== undefined && hasMetrics(logger))
        ? (await import('../../telemetry/index.js')).replicaMetrics({ db, lifecycles, logger, documents: !measured })
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
    // Probes are answered while it starts, and a port that is taken shows before any work begins.
    if (settings.http !== undefined) {
      const sources = {
        registry: metrics?.registry,
        notReady: () => replica.status().notReady,
        paused: () => replica.status().paused.map(({ text }) => text),
        problems: () => replica.status().problems,
      }
      server = await serveHttp(workspace, sources, settings, logger)
    }
    await replica.start()
    optimizeWhenBusy(process.env)
    // The lifecycles' module creates its own executors of named locks.
    const unobserved = metrics && observeLocks(metrics.locks)
    const stop = async () => {
      await replica.stop()
      await server?.close()
      unobserved?.()
      await connection.close()
      const left = replica.status().held
      logger.info(
        `stopped${left > 0 ? `; ${numbered(left, 'document keeps its lease: its step', 'documents keep their leases: their steps')} had not ended` : ''}`,
      )
    }
    return { replica, http: server?.http, metrics, stop }
  } catch (error) {
    await server?.close()
    await connection.close()
    throw error
  }
}
