import type { LeaseLoss, Logger, ReplicaObserver } from '../phases/index.js'

/** The move of a document to another phase by a step's `moveTo` or by its phase's deadline. */
export interface Transition {
  /** The lifecycle's name. */
  readonly lifecycle: string
  /** The document's `_id`. */
  readonly id: unknown
  /** The phase that it left. */
  readonly from: string
  /** The phase that it is in now. */
  readonly to: string
  /** `step`: its handler returned `step.moveTo(...)`; `deadline`: the phase took longer than its deadline allows. */
  readonly by: 'step' | 'deadline'
  /** The name of the step that moved it; null if it has none. */
  readonly step: string | null
  /** The run time of the handler. */
  readonly ms: number
}

/** A document that waits for a person: its handler parked it, or its attempts or claims were used up. */
export interface Parked {
  /** The lifecycle's name. */
  readonly lifecycle: string
  /** The document's `_id`. */
  readonly id: unknown
  /** The phase where it was parked, and where it continues once a person unparks it. */
  readonly phase: string
  /** The reason passed to `step.park`, or the engine's own, such as '20 errors in a row, the last: ...'. */
  readonly reason: string | null
}

/**
 * Callbacks that run after the database has recorded the change, in the replica that made it. Errors that a hook throws or rejects with are
 * only logged; no work waits for a hook. State rules move documents in bulk and have no hook: see `observer.ruled`.
 */
export interface Hooks {
  /** A document is in another phase. */
  readonly onTransition?: ((event: Transition) => unknown) | undefined
  /** A document was parked, and waits for a person. */
  readonly onParked?: ((event: Parked) => unknown) | undefined
  /** A step of this replica lost its document to another, or may have: its outcome doesn't count. */
  readonly onLeaseLost?: ((event: LeaseLoss) => unknown) | undefined
}

export const HOOKS = ['onTransition', 'onParked', 'onLeaseLost'] as const satisfies (keyof Hooks)[]

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
      const { lifecycle, id, phase, to, step, ms, outcome, reason } = event
      if (outcome === 'moveTo' || outcome === 'deadline') {
        const by = outcome === 'moveTo' ? 'step' : 'deadline'
        void tell('onTransition', hooks.onTransition, { lifecycle, id, from: phase, to, by, step, ms })
      }
      if (outcome === 'park') void tell('onParked', hooks.onParked, { lifecycle, id, phase, reason })
    },
    leaseLost: (event) => void tell('onLeaseLost', hooks.onLeaseLost, event),
  }
}
