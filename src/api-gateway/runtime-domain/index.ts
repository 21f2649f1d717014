export { type RuntimeDomainSettings, runtimeDomainDefinition } from './definition.js'
export {
  type BackendService,
  DOMAIN_COLLECTIONS,
  type DomainState,
  type Placement,
  type Route,
  type RuntimeDomain,
  reservedFor,
} from './documents.js'
export { DomainStore } from './domain-store.js'
export type { DomainBackend, Gateways } from './gateways.js'
export { type RuntimeDomainLifecycles, type RuntimeDomainOptions, runtimeDomainLifecycles } from './lifecycles.js'
