/** A replica whose handlers misbehave when a document asks for it. */
import { gatewayReplica, type ReplicaConfig } from '../../dist/cli/demo/gateway-replica.js'
import { faultyHandlers } from './faulty-handlers.ts'
import { roundStepNumber } from './round-order.ts'

export interface FaultsReplicaConfig extends ReplicaConfig {
  readonly ledgerUri: string
  readonly stepTimeoutMs: number
}

gatewayReplica<FaultsReplicaConfig>(({ lockTimeoutMs, ledgerUri, stepTimeoutMs }) => ({
  ledgerUri,
  stepTimeoutMs,
  numberOf: roundStepNumber,
  wrap: (observe) => faultyHandlers(observe, { lockTimeoutMs, stepTimeoutMs }),
}))
