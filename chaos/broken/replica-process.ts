/** A replica whose commands a proxy may rewrite, those to the ledger apart. */
import { gatewayReplica, type ReplicaConfig } from '../proof/gateway-replica.ts'

export interface BrokenReplicaConfig extends ReplicaConfig {
  readonly ledgerUri: string
}

gatewayReplica<BrokenReplicaConfig>(({ ledgerUri }) => ({ ledgerUri }))
