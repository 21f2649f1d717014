import { type AnyHandler, BoundLifecycle } from '../phases/index.js'

/** Puts something around a handler: a ledger, a failure, a delay. It gets the handler and returns the one to run. */
export type WrapHandler = (lifecycle: string, phase: string, handler: AnyHandler) => AnyHandler

/** The same lifecycle with something around each of its handlers. */
export function wrapHandlers<Doc, G>(
  bound: BoundLifecycle<Doc, G>,
  wrap: WrapHandler | undefined,
): BoundLifecycle<Doc, G> {
  if (!wrap) return bound
  const handlers = Object.entries(bound.handlers).map(([phase, handler]) => [phase, wrap(bound.name, phase, handler)])
  return new BoundLifecycle<Doc, G>(bound.model, Object.fromEntries(handlers))
}
