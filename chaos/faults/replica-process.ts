/** A replica whose handlers misbehave when a document asks for it. */
import { MongoClient } from 'mongodb'
import { gatewayReplica, type ReplicaConfig } from '../../dist/cli/demo/gateway-replica.js'
import { faultyHandlers } from './faulty-handlers.ts'
import { Receiver, receivedHandlers } from './receiver.ts'
import { roundStepNumber } from './round-order.ts'

export interface FaultsReplicaConfig extends ReplicaConfig {
  readonly ledgerUri: string
  readonly stepTimeoutMs: number
}

gatewayReplica<FaultsReplicaConfig>(({ lockTimeoutMs, ledgerUri, database, stepTimeoutMs }) => {
  const received = receivedHandlers(new Receiver(new MongoClient(ledgerUri).db(database)), roundStepNumber)
  return {
    ledgerUri,
    stepTimeoutMs,
    numberOf: roundStepNumber,
    wrap: (observe) =>
      faultyHandlers((lifecycle, phase, handler) => observe(lifecycle, phase, received(lifecycle, phase, handler)), {
        lockTimeoutMs,
        stepTimeoutMs,
      }),
  }
})
