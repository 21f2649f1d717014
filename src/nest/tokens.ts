import { Inject } from '@nestjs/common'
import { InvalidOptions, shown } from '../options/index.js'
import { type BoundLifecycle, type Lifecycle, Replica } from '../phases/index.js'

/** The options as they were given; override this provider in tests to use another database or to turn the tick off. */
export const PHASELOCK_OPTIONS = Symbol.for('phaselock:options')

/** The checked options. @internal */
export const MODULE_SETTINGS = Symbol.for('phaselock:settings')

/** The database of this app's lifecycles: for modules that build on this one. */
export const MODULE_DATABASE = Symbol.for('phaselock:database')

/** The lifecycles of SchedulesModule, created for this app; absent without that module. @internal */
export const SCHEDULE_LIFECYCLES = Symbol.for('phaselock:schedule-lifecycles')

/** The named locks of this app. @internal */
export const MODULE_LOCKS = Symbol.for('phaselock:locks')

/**
 * The provider of a bound lifecycle, for `overrideProvider` and `app.get`.
 * @param lifecycle.name the name in its definition; the definition itself works too
 */
export function getLifecycleToken(lifecycle: { readonly name: string }): string {
  // Modules that import each other: one of them sees the other's constants before they have a value.
  if (typeof (lifecycle as { name?: unknown } | undefined)?.name !== 'string')
    throw new InvalidOptions('getLifecycleToken or @InjectLifecycle', [
      `expected a lifecycle, got ${shown(lifecycle)}; if its file imports this one, move the definition to a file of its own`,
    ])
  return `phaselock:lifecycle:${lifecycle.name}`
}

/** The provider of the replica of a database named by a `forFeature`; that of the module's own database is `Replica`. */
export function getReplicaToken(database: string): string {
  return `phaselock:replica:${database}`
}

/** The type that `@InjectLifecycle(gateway)` injects: `BoundLifecycleOf<typeof gateway>`. */
export type BoundLifecycleOf<L> =
  L extends Lifecycle<infer Doc, infer G, infer _Read> ? BoundLifecycle<Doc, G> : BoundLifecycle

/**
 * Injects the bound lifecycle: `insert`, `insertMany`, `find`, `setState`, `wake`, `unpark` and `remove`, typed by its
 * document and phases. Its module imports `PhaselockModule.forFeature([lifecycle])`; the parameter's type is
 * `BoundLifecycleOf<typeof lifecycle>`.
 * @param lifecycle.name the name in its definition; the definition itself works too
 */
export function InjectLifecycle(lifecycle: { readonly name: string }): ParameterDecorator & PropertyDecorator {
  return Inject(getLifecycleToken(lifecycle))
}

/**
 * Injects this process's `Replica`, for the module's own database or for the one named by a `forFeature` of the same module:
 * `status()` for health checks, `runOnce()` for tests.
 */
export function InjectReplica(database?: string): ParameterDecorator & PropertyDecorator {
  return Inject(database === undefined ? Replica : getReplicaToken(database))
}
