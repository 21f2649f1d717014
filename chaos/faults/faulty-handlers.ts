import type { AnyHandler } from '../../dist/phases/index.js'
import type { WrapHandler } from '../../dist/tasks/index.js'
import { sleep } from '../../dist/time/index.js'

/** What a gateway's own field `misbehaves` asks of the handler that works on it. */
export type Misbehaviour = 'throws' | 'alwaysThrows' | 'returnsNothing' | 'hangs' | 'ignoresSignal' | 'blocksLoop'

/** Errors in a row, if not forever. */
const TIMES = 2

/**
 * Makes the first step of such a gateway misbehave, and then soon behave. Only `alwaysThrows` goes on until it is parked.
 * @param observe the ledger's wrapper: what a handler does is inside it, what it returns to the engine is outside
 */
export function faultyHandlers(
  observe: WrapHandler,
  { lockTimeoutMs, stepTimeoutMs }: { lockTimeoutMs: number; stepTimeoutMs: number },
): WrapHandler {
  const misbehaving =
    (handler: AnyHandler): AnyHandler =>
    async (doc, step) => {
      switch (due(doc, step)) {
        case 'throws':
        case 'alwaysThrows':
          throw new Error('this handler was told to throw')
        case 'hangs':
          await new Promise((resolve) => step.signal.addEventListener('abort', resolve, { once: true }))
          throw step.signal.reason
        case 'ignoresSignal':
          await sleep(stepTimeoutMs + 3 * lockTimeoutMs)
          break
        case 'blocksLoop':
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * lockTimeoutMs)
          break
      }
      return handler(doc, step)
    }
  return (lifecycle, phase, handler) => {
    if (lifecycle !== 'api-gateway' || phase !== 'Creating') return observe(lifecycle, phase, handler)
    const observed = observe(lifecycle, phase, misbehaving(handler))
    const returning: AnyHandler = async (doc, step) => {
      const outcome = await observed(doc, step)
      return due(doc, step) === 'returnsNothing' ? (undefined as never) : outcome
    }
    return returning
  }
}

function due(doc: Parameters<AnyHandler>[0], step: Parameters<AnyHandler>[1]): Misbehaviour | undefined {
  const wanted = doc['misbehaves'] as Misbehaviour | undefined
  if (wanted === undefined || step.name !== undefined) return undefined
  if (wanted === 'alwaysThrows') return wanted
  // A claim without an outcome (its replica was killed or blocked) is no attempt, and is misbehaviour enough.
  const again = step.attempt > (wanted === 'throws' || wanted === 'returnsNothing' ? TIMES : 1)
  return again || (step.progress.claims ?? 1) > 1 ? undefined : wanted
}
