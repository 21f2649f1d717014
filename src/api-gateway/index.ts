export { type ApiGatewayDefinitions, type ApiGatewaySettings, apiGatewayDefinitions } from './definitions.js'
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
  type GatewayInstances,
  type GatewayInstancesOptions,
} from './lifecycles.js'
export { databaseNameFor, InvalidHostName } from './names.js'
export {
  type BackendService,
  type DomainBackend,
  type DomainState,
  type Gateways,
  type Placement,
  type Route,
  type RuntimeDomain,
  type RuntimeDomainLifecycles,
  type RuntimeDomainOptions,
  type RuntimeDomainSettings,
  runtimeDomainDefinition,
  runtimeDomainLifecycles,
} from './runtime-domain/index.js'
