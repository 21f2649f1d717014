import type { BindOptions } from '../kinds/index.js'
import type { RegionSource } from '../kubernetes/index.js'
import type { LifecycleSettingsSpec, RunnableLifecycle } from '../phases/index.js'
import type { Duration } from '../time/index.js'

/** The lifecycle that runs the instances of gateways, in the collection `Instance`. */
export interface GatewayInstances {
  readonly instance: RunnableLifecycle
  /** The name of the Service of the instance with this `_id`, also before it is placed. */
  serviceNameFor(id: unknown): string
}

/** What a gateway's lifecycles tell the lifecycle of its instances. */
export interface GatewayInstancesOptions extends Omit<LifecycleSettingsSpec, 'fields'>, BindOptions {
  readonly regions: RegionSource
  readonly keepFor: Duration
  readonly watch?: boolean | undefined
  /** Whether the gateway that made an instance is gone or going: the instance deletes itself then. */
  isOrphan(instance: { readonly gateway?: unknown }): Promise<boolean>
}
