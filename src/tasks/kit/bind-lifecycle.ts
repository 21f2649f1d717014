import type { Db } from 'mongodb'
import { checkOptions, t } from '../../options/index.js'
import { type Alongside, type AnyHandler, BoundLifecycle, runnableLifecycles } from '../../phases/index.js'

/** Wraps a handler, for example to add a ledger, a failure or a delay. It gets the handler and returns the one to run. */
export type WrapHandler = (lifecycle: string, phase: string, handler: AnyHandler) => AnyHandler

/** The result of a definition's `handle`: the lifecycle with its handlers. */
export type Bound<Definition> = Definition extends {
  /** The definition's method, whose result type is taken. */
  handle(handlers: never): infer B
}
  ? B
  : never

/** The options that each task kind needs to bind its lifecycles. */
export interface BindOptions {
  /** The database of the lifecycles' documents. */
  readonly db: Db
  /** Called once for each handler when the lifecycle is bound. Default: handlers run unwrapped. */
  readonly wrap?: WrapHandler | undefined
}

/** The options of `bindLifecycle`. */
export interface BindLifecycleOptions extends BindOptions {
  /**
   * Whether the handlers get numbers as the driver reads them by itself, whatever the database's options say (`promoteValues`, `useBigInt64`):
   * for a kind that others use with clients of theirs. Default false.
   */
  readonly plainNumbers?: boolean | undefined
}

const bindOptions = { db: t.aDatabase, wrap: t.optional(t.aFunction<WrapHandler>()) } satisfies t.TypesOf<BindOptions>
const toBind = t.partOf({ lifecycles: runnableLifecycles, plainNumbers: t.optional(t.flag), ...bindOptions })

/**
 * Checks these of a task kind's options; the others are left to its definition.
 * @param called the function whose options they are
 * @throws InvalidOptions
 */
export const checkBindOptions = (called: string, options: BindOptions): void =>
  void checkOptions(called, t.partOf(bindOptions), options)

const asItIs: WrapHandler = (_lifecycle, _phase, handler) => handler

/** Returns the lifecycle from `handle` with its owner's database, the work that runs alongside it, and its handlers wrapped. */
export function bindLifecycle<Doc, G>(
  lifecycle: BoundLifecycle<Doc, G>,
  options: BindLifecycleOptions,
  alongside: readonly Alongside[] = [],
): BoundLifecycle<Doc, G> {
  const {
    db,
    wrap = asItIs,
    plainNumbers,
  } = checkOptions('bindLifecycle', toBind, { ...options, lifecycles: [lifecycle] })
  const { model, handlers } = lifecycle
  const wrapped = Object.entries(handlers).map(([phase, handler]) => [phase, wrap(model.name, phase, handler)])
  const bound = new BoundLifecycle<Doc, G>(model, Object.fromEntries(wrapped), {}, [...alongside], plainNumbers)
  return bound.attach(db)
}
