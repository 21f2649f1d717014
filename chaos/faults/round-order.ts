import { stepNumber } from '../proof/step-order.ts'

/** The phases that a gateway goes through to what its owner wants, wherever it comes from: none may follow a later one. */
const WAYS: Readonly<Record<string, readonly string[]>> = {
  Running: ['Creating', 'Stopping', 'Starting'],
  Stopped: ['Creating', 'Starting', 'Stopping'],
  Deleted: ['Creating', 'Starting', 'Stopping', 'Deleting'],
}
const PER_PHASE = 100
const PER_ROUND = 1_000
const LIFECYCLE = 'api-gateway'

/** Thrown for a phase that is on no way to the state. */
export class OffTheWay extends Error {
  override readonly name = 'OffTheWay'
  constructor(phase: string, state: string) {
    super(`expected a phase on the way to '${state}', got '${phase}'`)
  }
}

/**
 * A step's place in its document's order, if an owner changes its mind. The owner counts its wishes in `round`, a field of
 * its own, in the write that changes `state`; within a round a gateway goes one way. Children have only one way.
 */
export function roundStepNumber(
  lifecycle: string,
  phase: string,
  step: string | undefined,
  { state, round }: { readonly state?: unknown; readonly round?: unknown },
): number {
  const number = stepNumber(lifecycle, phase, step)
  if (lifecycle !== LIFECYCLE) return number
  const wanted = typeof state === 'string' ? state : 'Running'
  const place = WAYS[wanted]?.indexOf(phase) ?? -1
  if (place < 0) throw new OffTheWay(phase, wanted)
  return (typeof round === 'number' ? round : 0) * PER_ROUND + place * PER_PHASE + (number % PER_PHASE)
}
