export { type ApiGatewaySettings, apiGatewayDefinitions } from './definitions.js'
export {
  type ApiGateway,
  type CloudFunction,
  COLLECTIONS,
  type CronTrigger,
  type GatewayDatabase,
  type GatewayState,
  type Route,
  type RuntimeDomain,
  type Stage,
} from './documents.js'
export {
  type ApiGatewayLifecycles,
  type ApiGatewayOptions,
  apiGatewayLifecycles,
  type WrapHandler,
} from './lifecycles.js'
export { databaseNameFor, InvalidHostName } from './names.js'
