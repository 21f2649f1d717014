/**
 * What a task kind is built with besides `phaselock` (and `phaselock/kubernetes` for one in a cluster).
 *
 * @example
 * ```ts
 * import { lifecycleOf } from 'phaselock'
 * import { type BindOptions, bindLifecycle, objectNameFor } from 'phaselock/kinds'
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
export { isDuplicateKey, protocolCollection } from '../database/index.js'
export { type HeldDocument, Holder, NoLongerHeld, type RunningStep } from '../phases/index.js'
export { durationMs, InvalidDuration } from '../time/index.js'
export { type BindOptions, type Bound, bindLifecycle, checkBindOptions, type WrapHandler } from './bind-lifecycle.js'
export { distinctName, idText, objectNameFor } from './names.js'
