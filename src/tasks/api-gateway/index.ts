export { databaseNameFor } from './database-name.js'
export { type ApiGatewayDefinitions, type ApiGatewaySettings, apiGatewayDefinitions } from './definition.js'
export {
  type ApiGateway,
  type CloudFunction,
  COLLECTIONS,
  type CronTrigger,
  type GatewayDatabase,
  type GatewayInstance,
  type GatewayPlacement,
  type GatewayState,
  type Stage,
} from './documents.js'
export * from './lifecycles.js'
