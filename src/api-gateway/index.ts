/**
 * A task kind: API gateways, their databases, and host names. `phaselock start --lifecycles phaselock/api-gateway` runs it.
 *
 * @example
 * ```ts
 * import { apiGatewayDefinitions } from 'phaselock/api-gateway'
 *
 * const { gateway, all } = apiGatewayDefinitions({ keepFor: '1d' })
 * console.log(gateway.name, all.map(({ name }) => name))
 * ```
 * @packageDocumentation
 */
import type { Db } from 'mongodb'
import type { RunnableLifecycle } from '../phases/index.js'
import { apiGatewayLifecycles } from './lifecycles.js'

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
export * from './lifecycles.js'
export { databaseNameFor, InvalidHostName } from './names.js'
export { type RuntimeDomainSettings, runtimeDomainDefinition } from './runtime-domain/definition.js'
export type { BackendService, DomainState, Placement, Route, RuntimeDomain } from './runtime-domain/documents.js'
export type { DomainBackend, Gateways } from './runtime-domain/gateways.js'
export * from './runtime-domain/lifecycles.js'

/**
 * The lifecycles of gateways on a database alone, for `phaselock start --lifecycles phaselock/api-gateway`.
 * @example const replica = new Replica({ db, lifecycles: gateways({ db }) })
 */
export default function gateways({ db }: { readonly db: Db }): readonly RunnableLifecycle[] {
  return apiGatewayLifecycles({ db }).all
}
