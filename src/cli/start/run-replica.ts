import type { Settings } from '../../config/index.js'
import { observeLocks } from '../../locks/index.js'
import type { Logger, Replica } from '../../phases/index.js'
import type { ReplicaMetrics } from '../../telemetry/index.js'
import type { Workspace } from '../workspace.js'
import { optimiseWhenBusy } from './lean-heap.js'

/** A replica in this process, and its orderly shutdown, that of its workspace included. */
export interface RunningReplica {
  readonly replica: Replica
  /** `http://host:port` when its web server runs. */
  readonly http: string | undefined
  readonly metrics: ReplicaMetrics | undefined
  stop(): Promise<void>
}

/**
 * Runs one replica in this process.
 * @param as.measured another process asks for its metrics: without a web server, and without the document counts,
 *   which are the same for all replicas. Default: both, when `settings.http` is set
 * @throws what `bootApp` throws; the workspace is closed then
 */
export async function runReplica(
  workspace: Workspace,
  settings: Settings,
  logger: Logger,
  as: { readonly measured?: boolean } = {},
): Promise<RunningReplica> {
  try {
    // Nest is loaded for the web server only.
    const boot =
      settings.http === undefined ? (await import('./plain-replica.js')).bootPlain : (await import('./app.js')).bootApp
    const { replica, http, metrics, close } = await boot(workspace, settings, logger, as)
    optimiseWhenBusy(process.env)
    // The lifecycles' module creates its own executors of named locks.
    const unobserved = metrics && observeLocks(metrics.locks)
    const stop = async () => {
      await close()
      unobserved?.()
      await workspace.connection.close()
      const left = replica.status().held
      const note = left > 0 ? `; ${left} documents keep their leases: their steps had not ended` : ''
      logger.info(`stopped${note}`)
    }
    return { replica, http, metrics, stop }
  } catch (error) {
    await workspace.connection.close()
    throw error
  }
}
