/** A replica without one protection of the lock protocol. */
import { gatewayReplica, type ReplicaConfig } from '../../dist/cli/demo/gateway-replica.js'
import { systemClock } from '../../dist/time/index.js'
import { type Breakable, brokenProtocol, clockAhead } from './broken-protocols.ts'

export interface BrokenReplicaConfig extends ReplicaConfig {
  readonly broken: Breakable
  /** How far its wall clock runs ahead. */
  readonly clockAheadMs: number
}

gatewayReplica<BrokenReplicaConfig>(({ broken, clockAheadMs }) => {
  const clock = clockAheadMs > 0 ? clockAhead(systemClock, clockAheadMs) : systemClock
  return { replica: { clock, protocol: brokenProtocol(broken, clock) } }
})
