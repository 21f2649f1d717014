export { type ApiGatewaySettings, apiGatewayDefinitions } from './definitions.js'
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
export {
  type ApiGatewayLifecycles,
  type ApiGatewayOptions,
  apiGatewayLifecycles,
} from './lifecycles.js'
