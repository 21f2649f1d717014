/** A replica whose handlers misbehave when a document asks for it. */
import { MongoClient } from 'mongodb'
import { gatewayReplica, type ReplicaConfig } from '../proof/gateway-replica.ts'
import { faultyHandlers } from './faulty-handlers.ts'
import { workOnOrders } from './orders.ts'
import { Receiver, receivedHandlers } from './receiver.ts'
import { roundStepNumber } from './round-order.ts'
import { doTimedWork } from './timed-work.ts'

export interface FaultsReplicaConfig extends ReplicaConfig {
  readonly ledgerUri: string
  readonly stepTimeoutMs: number
  readonly maxActive: number
  /** Whether it has named locks and schedules to work on as well. */
  readonly timedWork: boolean
}

gatewayReplica<FaultsReplicaConfig>((config) => {
  const { lockTimeoutMs, ledgerUri, database, stepTimeoutMs, maxActive } = config
  void workOnOrders(config)
  if (config.timedWork) void doTimedWork(config)
  const received = receivedHandlers(new Receiver(new MongoClient(ledgerUri).db(database)), roundStepNumber)
  return {
    ledgerUri,
    stepTimeoutMs,
    maxActive,
    numberOf: roundStepNumber,
    wrap: (observe) =>
      faultyHandlers((lifecycle, phase, handler) => observe(lifecycle, phase, received(lifecycle, phase, handler)), {
        lockTimeoutMs,
        stepTimeoutMs,
      }),
  }
})
