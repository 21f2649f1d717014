import type { LeaseLoss, Logger, ReplicaObserver, StepEnded } from '../phases/index.js'

/** A document went to another phase by a step's `moveTo` or by its phase's deadline. */
export interface Transition {
  readonly lifecycle: string
  readonly id: unknown
  readonly from: string
  readonly to: string
  readonly by: 'step' | 'deadline'
  /** The name of the step that moved it; null when it has none. */
  readonly step: string | null
  /** How long the handler ran. */
  readonly ms: number
}

/** A document waits for a person: its handler parked it, or its attempts or claims were used up. */
export interface Parked {
  readonly lifecycle: string
  readonly id: unknown
  readonly phase: string
  readonly reason: string | null
}

/**
 * Called after the database has recorded the change, by the replica that made it. What a hook throws or rejects with is only logged;
 * nothing waits for a hook. State rules move documents in bulk and have no hook: see `observer.ruled`.
 */
export interface Hooks {
  readonly onTransition?: ((event: Transition) => unknown) | undefined
  readonly onParked?: ((event: Parked) => unknown) | undefined
  readonly onLeaseLost?: ((event: LeaseLoss) => unknown) | undefined
}

export const HOOKS = ['onTransition', 'onParked', 'onLeaseLost'] as const satisfies (keyof Hooks)[]

/** The hooks as an observer. */
export function hooksObserver(hooks: Hooks, logger: Logger): ReplicaObserver {
  const tell = async <E>(name: keyof Hooks, hook: ((event: E) => unknown) | undefined, event: E) => {
    try {
      await hook?.(event)
    } catch (error) {
      logger.error(`${name} failed: ${String(error)}`, { error })
    }
  }
  return {
    stepEnded(event) {
      const moved = transition(event)
      if (moved) void tell('onTransition', hooks.onTransition, moved)
      if (event.outcome === 'park') void tell('onParked', hooks.onParked, parked(event))
    },
    leaseLost: (event) => void tell('onLeaseLost', hooks.onLeaseLost, event),
  }
}

function transition(event: StepEnded): Transition | undefined {
  if (event.outcome !== 'moveTo' && event.outcome !== 'deadline') return undefined
  const { lifecycle, id, phase: from, to, step, ms } = event
  return { lifecycle, id, from, to, by: event.outcome === 'moveTo' ? 'step' : 'deadline', step, ms }
}

function parked({ lifecycle, id, phase, reason }: StepEnded): Parked {
  return { lifecycle, id, phase, reason }
}
