import { type Lifecycle, type LifecycleSettingsSpec, lifecycleOf } from '../../phases/index.js'
import type { Duration } from '../../time/index.js'
import { runtimeDomainDefinition } from '../runtime-domain/definition.js'
import { type ApiGateway, COLLECTIONS, type GatewayDatabase } from './documents.js'

/** Settings of the three lifecycles, the same for each. Defaults are those of every lifecycle. */
export interface ApiGatewaySettings extends Omit<LifecycleSettingsSpec, 'fields'> {
  /** The retention of a deleted gateway's document. Default 1h; '0s': removed immediately. Those of its children are always removed immediately. */
  readonly keepFor?: Duration | undefined
}

const DEFAULT_KEEP_FOR: Duration = '1h'

function defineGateway({ keepFor = DEFAULT_KEEP_FOR, ...settings }: ApiGatewaySettings) {
  return lifecycleOf<ApiGateway>().define({
    name: 'api-gateway',
    collection: COLLECTIONS.gateway,
    phases: {
      Creating: { next: ['Created'] },
      Created: { rest: true },
      Starting: { next: ['Started'] },
      Started: { rest: true },
      Stopping: { next: ['Stopped'] },
      Stopped: { rest: true },
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true, keepFor },
    },
    rules: [
      { when: 'Running', from: ['Created', 'Stopped'], moveTo: 'Starting' },
      // Even one that can't be started because its instance or domain can't: it would wait for them, and could never be stopped.
      { when: 'Stopped', from: ['Created', 'Starting', 'Started'], moveTo: 'Stopping' },
      { when: 'Deleted', from: 'any', moveTo: 'Deleting' },
    ],
    ...settings,
  })
}

function defineGatewayDatabase(settings: Omit<ApiGatewaySettings, 'keepFor'>) {
  return lifecycleOf<GatewayDatabase>().define({
    name: 'gateway-database',
    collection: COLLECTIONS.gatewayDatabase,
    phases: {
      // To Deleting if the gateway that created it is gone.
      Creating: { next: ['Created', 'Deleting'] },
      Created: { rest: true },
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true },
    },
    rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
    ...settings,
  })
}

/** The definitions of a gateway's lifecycles, for tools that need their phases and rules but run no handlers. */
export interface ApiGatewayDefinitions {
  /** The definition of gateways (collection `ApiGateway`). */
  readonly gateway: ReturnType<typeof defineGateway>
  /** The definition of their host names (collection `RuntimeDomain`). */
  readonly runtimeDomain: ReturnType<typeof runtimeDomainDefinition>
  /** The definition of their MongoDB databases (collection `GatewayDatabase`). */
  readonly gatewayDatabase: ReturnType<typeof defineGatewayDatabase>
  /** All of them, for callers that only need names, collections and phases. */
  readonly all: readonly Pick<Lifecycle<unknown, unknown>, 'name' | 'model'>[]
}

/**
 * The three lifecycles without their handlers: for Nest's decorators, and for programs that inspect documents and run no handlers.
 * @throws InvalidLifecycle for unknown settings and those out of range
 */
export function apiGatewayDefinitions(settings: ApiGatewaySettings = {}): ApiGatewayDefinitions {
  const { keepFor: _, ...childSettings } = settings
  const gateway = defineGateway(settings)
  const runtimeDomain = runtimeDomainDefinition(childSettings)
  const gatewayDatabase = defineGatewayDatabase(childSettings)
  return { gateway, runtimeDomain, gatewayDatabase, all: [gateway, runtimeDomain, gatewayDatabase] }
}
