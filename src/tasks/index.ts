/**
 * The task kinds that need only MongoDB (API gateways with their databases and host names), and the kit for building kinds of your own.
 * `phaselock start --lifecycles phaselock/tasks` runs the gateways.
 *
 * @example
 * ```ts
 * import { lifecycleOf } from 'phaselock'
 * import { apiGatewayDefinitions, type BindOptions, bindLifecycle, objectNameFor } from 'phaselock/tasks'
 *
 * const { gateway, all } = apiGatewayDefinitions({ keepFor: '1d' })
 * console.log(gateway.name, all.map(({ name }) => name))
 *
 * const site = lifecycleOf<{ _id: string; bucket?: string }>().define({
 *   name: 'site',
 *   collection: 'Site',
 *   phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
 * })
 *
 * export const sitesOf = (options: BindOptions) =>
 *   bindLifecycle(
 *     site.handle({
 *       Creating: async (doc, step) => step.moveTo('Created', { set: { bucket: objectNameFor('site-', doc._id) } }),
 *     }),
 *     options,
 *   )
 * ```
 * @packageDocumentation
 */
import type { Db } from 'mongodb'
import type { RunnableLifecycle } from '../phases/index.js'
import { apiGatewayLifecycles } from './api-gateway/index.js'

export * from './api-gateway/index.js'
export * from './kit/index.js'
export * from './runtime-domain/index.js'

/**
 * The lifecycles of gateways on a database alone, for `phaselock start --lifecycles phaselock/tasks`.
 * @example const replica = new Replica({ db, lifecycles: gateways({ db }) })
 */
export default function gateways({ db }: { readonly db: Db }): readonly RunnableLifecycle[] {
  return apiGatewayLifecycles({ db }).all
}
