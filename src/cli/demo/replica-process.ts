import { gatewayReplica } from './gateway-replica.js'

gatewayReplica()
