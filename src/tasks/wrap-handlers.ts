import { type AnyHandler, BoundLifecycle } from '../phases/index.js'

/** Puts something around a handler: a ledger, a failure, a delay. It gets the handler and returns the one to run. */
export type WrapHandler = (lifecycle: string, phase: string, handler: AnyHandler) => AnyHandler

/** What a definition's `handle` returns: the lifecycle with its handlers. */
export type Bound<Definition> = Definition extends { handle(handlers: never): infer B } ? B : never

/** The same lifecycle with something around each of its handlers. */
export function wrapHandlers<Doc, G>(
  bound: BoundLifecycle<Doc, G>,
  wrap: WrapHandler | undefined,
): BoundLifecycle<Doc, G> {
  if (!wrap) return bound
  const handlers = Object.entries(bound.handlers).map(([phase, handler]) => [phase, wrap(bound.name, phase, handler)])
  return new BoundLifecycle<Doc, G>(bound.model, Object.fromEntries(handlers))
}
