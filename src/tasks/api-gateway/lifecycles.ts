import type { Db } from 'mongodb'
import { type AnyHandler, BoundLifecycle, type RunnableLifecycle } from '../../phases/index.js'
import { Collections } from './collections.js'
import { type ApiGatewayDefinitions, type ApiGatewaySettings, apiGatewayDefinitions } from './definitions.js'
import { creating, deleting, starting, stopping } from './gateway/index.js'
import { databaseCreating, databaseDeleting } from './gateway-database.js'
import { parseHostName } from './names.js'
import { domainCreating, domainDeleting } from './runtime-domain.js'

/** Puts something around a handler: a ledger, a failure, a delay. It gets the handler and returns the one to run. */
export type WrapHandler = (lifecycle: string, phase: string, handler: AnyHandler) => AnyHandler

export interface ApiGatewayOptions extends ApiGatewaySettings {
  /** The database of the lifecycles' documents; gateways' own databases are made on the same server. */
  readonly db: Db
  /** What the host names of gateways without a domain of their own end with. Default `localhost`. */
  readonly baseDomain?: string | undefined
  readonly wrap?: WrapHandler | undefined
}

type Bound<Definition> = Definition extends { handle(handlers: never): infer B } ? B : never

export interface ApiGatewayLifecycles {
  readonly gateway: Bound<ApiGatewayDefinitions['gateway']>
  readonly runtimeDomain: Bound<ApiGatewayDefinitions['runtimeDomain']>
  readonly gatewayDatabase: Bound<ApiGatewayDefinitions['gatewayDatabase']>
  /** What a replica runs: `new Replica({ db, lifecycles: all })`. A gateway needs all three. */
  readonly all: readonly RunnableLifecycle[]
}

/**
 * The api-gateway lifecycle and those of its children, with their handlers. See docs/tasks/api-gateway.md.
 * @throws InvalidLifecycle for unknown settings and those out of range; InvalidHostName for a base domain that is none
 */
export function apiGatewayLifecycles(options: ApiGatewayOptions): ApiGatewayLifecycles {
  const { db, baseDomain = 'localhost', wrap = (_lifecycle, _phase, handler) => handler, ...settings } = options
  const definitions = apiGatewayDefinitions(settings)
  const collections = new Collections(db)
  const wrapped = <Doc, G>(bound: BoundLifecycle<Doc, G>): BoundLifecycle<Doc, G> => {
    const handlers = Object.entries(bound.handlers).map(([phase, handler]) => [phase, wrap(bound.name, phase, handler)])
    return new BoundLifecycle<Doc, G>(bound.model, Object.fromEntries(handlers)).attach(db)
  }
  const gateway = wrapped(
    definitions.gateway.handle({
      Creating: creating(collections, parseHostName(baseDomain)),
      Starting: starting(collections),
      Stopping: stopping(collections),
      Deleting: deleting(collections),
    }),
  )
  const runtimeDomain = wrapped(
    definitions.runtimeDomain.handle({
      Creating: domainCreating(collections),
      Deleting: domainDeleting(collections),
    }),
  )
  const gatewayDatabase = wrapped(
    definitions.gatewayDatabase.handle({
      Creating: databaseCreating(collections),
      Deleting: databaseDeleting(collections),
    }),
  )
  return { gateway, runtimeDomain, gatewayDatabase, all: [gateway, runtimeDomain, gatewayDatabase] }
}
