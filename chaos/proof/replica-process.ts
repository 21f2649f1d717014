import { gatewayReplica } from './gateway-replica.ts'

gatewayReplica()
