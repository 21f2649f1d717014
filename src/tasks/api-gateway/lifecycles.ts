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
  /** What a replica runs, with its handlers. */
  readonly instance: RunnableLifecycle
  /** The name of the Service of the instance with this `_id`, also before it is placed. */
  serviceNameFor(id: unknown): string
}

/** What a gateway's lifecycles tell the lifecycle of its instances. */
export interface GatewayInstancesOptions extends Omit<LifecycleSettingsSpec, 'fields'>, BindOptions {
  /** Where instances may be placed. */
  readonly regions: RegionSource
  /** How long a deleted instance stays as a document. */
  readonly keepFor: Duration
  /** Whether instances go on as soon as their objects in the cluster change. Default true. */
  readonly watch?: boolean | undefined
  /** Whether the gateway that made an instance is gone or going: the instance deletes itself then. */
  isOrphan(instance: { readonly gateway?: unknown }): Promise<boolean>
}

/** Gateways' own databases are made on the server of `db`. */
export interface ApiGatewayOptions extends ApiGatewaySettings, BindOptions {
  /** The ending of the host names of gateways without a domain of their own. Default `localhost`. */
  readonly baseDomain?: string | undefined
  /**
   * Where gateways have an instance, and their domains a Certificate and an Ingress (docs/regions.md). Default: nowhere; a gateway has only
   * its database, its stage and its routes then.
   */
  readonly regions?: RegionSource | undefined
  /** With regions: what runs the gateways' instances there, `instanceLifecycles` of the package phaselock-tasks. */
  readonly instances?: ((options: GatewayInstancesOptions) => GatewayInstances) | undefined
  /** What the instances of gateways run unless a gateway's own `instance` says otherwise. */
  readonly instance?: GatewayInstance | undefined
  /** With regions: whether children go on as soon as their objects in the cluster change, by watches on each replica. Default true. */
  readonly watch?: boolean | undefined
}

/** What `apiGatewayLifecycles` returns: each lifecycle with its handlers, and `all` of them. */
export interface ApiGatewayLifecycles {
  /** Gateways: `gateway.insert({ name: 'shop', state: 'Running' })`. */
  readonly gateway: Bound<ApiGatewayDefinitions['gateway']>
  /** Their host names, and those that an owner adds. */
  readonly runtimeDomain: Bound<ApiGatewayDefinitions['runtimeDomain']>
  /** Their MongoDB databases. */
  readonly gatewayDatabase: Bound<ApiGatewayDefinitions['gatewayDatabase']>
  /** With regions. */
  readonly instance: RunnableLifecycle | undefined
  /** What a replica runs: `new Replica({ db, lifecycles: all })`. A gateway needs all of them. */
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
    { db, wrap },
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
    { db, wrap },
  )
  const all = [gateway, runtimeDomain, gatewayDatabase, ...(made ? [made.instance] : [])]
  return { gateway, runtimeDomain, gatewayDatabase, instance: made?.instance, all }
}
