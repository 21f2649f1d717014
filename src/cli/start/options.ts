import { optionsOfReplica, type Settings } from '../../config/index.js'
import type { DatabaseConnection } from '../../database/index.js'
import type { Alongside, Logger, Replica, ReplicaObserver, ReplicaOptions } from '../../phases/index.js'
import type { ReplicaMetrics } from '../../telemetry/index.js'
import type { CliContext } from '../context.js'
import { logTransitions } from './transitions.js'

export interface StartOptions extends CliContext {
  readonly settings: Settings
  readonly logger: Logger
  readonly json: boolean
  /** The number of ticks after which it ends. Default: it runs until it is asked to stop. */
  readonly ticks?: number | undefined
}

/** A replica in this process, and its orderly shutdown, including that of its workspace. */
export interface RunningReplica {
  readonly replica: Replica
  /** `http://host:port` when its web server runs. */
  readonly http: string | undefined
  readonly metrics: ReplicaMetrics | undefined
  stop(): Promise<void>
}

/** The options of this process's replica, from the settings. @throws PodUnknown */
export async function replicaOptions(settings: Settings) {
  return {
    ...optionsOfReplica(settings),
    alongside: await besideLifecycles(settings),
  } satisfies Partial<ReplicaOptions>
}

/** The observer that logs transitions, if they are to be logged. */
export function transitionsOf(
  { transitions }: Settings,
  { source }: Pick<DatabaseConnection, 'source'>,
  logger: Logger,
): readonly ReplicaObserver[] {
  const isWanted = transitions === undefined ? source !== 'uri' : transitions === 'on'
  return isWanted ? [logTransitions(logger)] : []
}

/** The functions that run alongside each lifecycle of a replica, from the settings. @throws PodUnknown */
export async function besideLifecycles(settings: Settings): Promise<readonly Alongside[]> {
  if (settings.earlyRecovery === 'off') return []
  const { earlyRecovery } = await import('../../kubernetes/index.js')
  return [earlyRecovery()]
}
