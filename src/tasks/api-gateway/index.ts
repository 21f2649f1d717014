export { databaseNameFor } from './database-name.js'
export { type ApiGatewayDefinitions, apiGatewayDefinitions } from './definition.js'
export {
  type ApiGateway,
  type CloudFunction,
  COLLECTIONS,
  type CronTrigger,
  type GatewayDatabase,
  type Stage,
} from './documents.js'
export * from './lifecycles.js'
