import { type RegionSource, regionWorks } from '../../kubernetes/index.js'
import { InvalidLifecycle, type LifecycleSettingsSpec, type RunnableLifecycle } from '../../phases/index.js'
import type { Duration } from '../../time/index.js'
import { type BindOptions, type Bound, bindLifecycle, checkBindOptions } from '../kit/index.js'
import { parseHostName } from '../runtime-domain/host-name.js'
import { runtimeDomainLifecycles } from '../runtime-domain/lifecycles.js'
import { Collections } from './collections.js'
import { creating } from './creating.js'
import { type ApiGatewayDefinitions, type ApiGatewaySettings, apiGatewayDefinitions } from './definition.js'
import { deleting } from './deleting.js'
import type { GatewayInstance } from './documents.js'
import { databaseCreating, databaseDeleting } from './gateway-database.js'
import { gatewaysOf, isOrphan } from './gateways.js'
import { starting } from './starting.js'
import { stopping } from './stopping.js'

/** The lifecycle that runs the instances of gateways, in the collection `Instance`. */
export interface GatewayInstances {
  /** The lifecycle for a replica, with its handlers. */
  readonly instance: RunnableLifecycle
  /** Returns the name of the Service of the instance with this `_id`, even before it is placed. */
  serviceNameFor(id: unknown): string
}

/** The options that a gateway's lifecycles pass to the lifecycle of its instances. */
export interface GatewayInstancesOptions extends Omit<LifecycleSettingsSpec, 'fields'>, BindOptions {
  /** The regions where instances may be placed. */
  readonly regions: RegionSource
  /** The retention of a deleted instance's document. */
  readonly keepFor: Duration
  /** True to continue instances as soon as their objects in the cluster change. Default true. */
  readonly watch?: boolean | undefined
  /** True if the gateway that created an instance is gone or being deleted: the instance then deletes itself. */
  isOrphan(instance: { readonly gateway?: unknown }): Promise<boolean>
}

/** The options of the gateway lifecycles. Gateways' own databases are created on the server of `db`. */
export interface ApiGatewayOptions extends ApiGatewaySettings, BindOptions {
  /** The suffix of the host names of gateways without a domain of their own. Default `localhost`. */
  readonly baseDomain?: string | undefined
  /**
   * The regions where gateways have an instance, and their domains a Certificate and an Ingress (docs/regions.md). Default: none; a gateway then
   * has only its database, its stage and its routes.
   */
  readonly regions?: RegionSource | undefined
  /** With regions: the lifecycle that runs the gateways' instances there, `instanceLifecycles` of the package phaselock-tasks. */
  readonly instances?: ((options: GatewayInstancesOptions) => GatewayInstances) | undefined
  /** The defaults for the instances of gateways, overridden by a gateway's own `instance`. */
  readonly instance?: GatewayInstance | undefined
  /** With regions: true to continue children as soon as their objects in the cluster change, by watches on each replica. Default true. */
  readonly watch?: boolean | undefined
}

/** The result of `apiGatewayLifecycles`: each lifecycle with its handlers, and `all` of them. */
export interface ApiGatewayLifecycles {
  /** Gateways: `gateway.insert({ name: 'shop', state: 'Running' })`. */
  readonly gateway: Bound<ApiGatewayDefinitions['gateway']>
  /** Their host names, and those that an owner adds. */
  readonly runtimeDomain: Bound<ApiGatewayDefinitions['runtimeDomain']>
  /** Their MongoDB databases. */
  readonly gatewayDatabase: Bound<ApiGatewayDefinitions['gatewayDatabase']>
  /** The lifecycle of their instances, with regions. */
  readonly instance: RunnableLifecycle | undefined
  /** The lifecycles for a replica: `new Replica({ db, lifecycles: all })`. A gateway needs all of them. */
  readonly all: readonly RunnableLifecycle[]
}

/**
 * The api-gateway lifecycle and those of its children, with their handlers. See docs/tasks/api-gateway.md.
 * @throws InvalidOptions without a database; InvalidLifecycle for unknown settings and those out of range; InvalidHostName for an invalid base domain
 */
export function apiGatewayLifecycles(options: ApiGatewayOptions): ApiGatewayLifecycles {
  checkBindOptions('apiGatewayLifecycles', options)
  const {
    db,
    baseDomain = 'localhost',
    regions,
    instances,
    instance: defaults = {},
    watch,
    wrap,
    ...settings
  } = options
  const { keepFor: _, ...childSettings } = settings
  const definitions = apiGatewayDefinitions(settings)
  const collections = new Collections(db, regions !== undefined)
  if (regions && !instances) {
    throw new InvalidLifecycle('api-gateway', [
      'instances: expected what runs the instances of gateways with regions, instanceLifecycles of the package phaselock-tasks, got undefined',
    ])
  }
  const forInstances = { keepFor: '0s', isOrphan: (instance: object) => isOrphan(collections, instance) } as const
  const made = regions && instances?.({ ...childSettings, ...forInstances, db, regions, watch, wrap })
  const gateway = bindLifecycle(
    definitions.gateway.handle({
      Creating: creating(collections, { baseDomain: parseHostName(baseDomain), regions, instance: defaults }),
      Starting: starting(collections, regions),
      Stopping: stopping(collections, regions),
      Deleting: deleting(collections, regions),
    }),
    { db, wrap, plainNumbers: true },
    regions ? regionWorks(regions, []) : [],
  )
  const { runtimeDomain } = runtimeDomainLifecycles({
    ...childSettings,
    db,
    regions,
    gateways: gatewaysOf(collections, made?.serviceNameFor),
    watch,
    wrap,
  })
  const gatewayDatabase = bindLifecycle(
    definitions.gatewayDatabase.handle({
      Creating: databaseCreating(collections),
      Deleting: databaseDeleting(collections),
    }),
    { db, wrap, plainNumbers: true },
  )
  const all = [gateway, runtimeDomain, gatewayDatabase, ...(made ? [made.instance] : [])]
  return { gateway, runtimeDomain, gatewayDatabase, instance: made?.instance, all }
}
