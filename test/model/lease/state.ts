import type { Document } from 'mongodb'

/** How a step may end in the model. */
export type EndName = 'again' | 'unlock' | 'wait' | 'move' | 'park' | 'error' | 'released' | 'checkpoint'

/** What a replica believes: a step of its own on the document, under a lease. */
export interface Task {
  readonly replica: string
  readonly claim: number
  readonly step: number
  readonly token: string
  readonly fence: number
  /** Of the document's, when this step began. */
  readonly epoch: number
  /** The tick at which its claim or last renewal was sent, by its own clock. */
  readonly from: number
  /** An end whose outcome isn't known yet. */
  readonly doubt?: Doubt
}

export interface Doubt {
  readonly kind: EndName
  readonly token: string
  readonly next: string | null
}

/** A checkpoint whose outcome isn't known yet; its step goes on, or has been given up. */
export interface OpenCheckpoint extends Doubt {
  readonly epoch: number
}

/** A claim whose outcome isn't known yet. */
export interface OpenClaim {
  readonly replica: string
  readonly claim: number
  readonly token: string
  readonly from: number
  /** What it began, if it was executed. */
  readonly epoch?: number
}

/** A command that may still reach the server, or never; `startedAt`: it waits in there, and its `$$NOW` is that of its start. */
export type Late =
  | {
      readonly what: 'end'
      readonly kind: EndName
      readonly token: string
      readonly next: string | null
      readonly epoch: number
    }
  | { readonly what: 'claim'; readonly replica: string; readonly claim: number; readonly token: string }
  | { readonly what: 'renewal'; readonly replica: string; readonly claim: number; readonly startedAt: number }
  | { readonly what: 'recovery'; readonly replica: string; readonly readAt: number }

/** The world: one document, its replicas, and what is on its way. Ghosts: `epoch`, `recorded`, `executed`, `highest*`. */
export interface World {
  readonly tick: number
  readonly document: Document | null
  /** Grows with each claim, step, rule, replacement: whoever began the newest one has the document. */
  readonly epoch: number
  /** The epoch of the newest outcome that was recorded. */
  readonly recorded: number
  readonly tasks: readonly Task[]
  readonly checkpoints: readonly OpenCheckpoint[]
  readonly claims: readonly OpenClaim[]
  readonly late: readonly Late[]
  /** Ends in doubt that were executed. */
  readonly executed: readonly string[]
  /** A writer of the old kind that has the document. */
  readonly legacy: { readonly epoch: number; readonly from: number } | null
  readonly dead: readonly string[]
  /** Steps that have ended, whose effects may still be on their way. */
  readonly zombies: readonly Pick<Task, 'token' | 'fence' | 'epoch'>[]
  /** What a receiver of effects that refuses lower fences has seen. */
  readonly highestFence: number
  readonly highestEpoch: number
  readonly claimsSoFar: number
  readonly faults: number
  readonly edits: number
}

export const idOf = ({ kind, token }: Pick<Doubt, 'kind' | 'token'>): string => `${kind} ${token}`

export const replaced = (tasks: readonly Task[], task: Task, by: Task | undefined): Task[] =>
  tasks.flatMap((one) => (one === task ? (by ? [by] : []) : [one]))

export const dropped = (world: World, task: Task): World => ({
  ...world,
  tasks: replaced(world.tasks, task, undefined),
})

export const forgotten = (world: World, doubt: Doubt): World => ({
  ...world,
  executed: world.executed.filter((one) => one !== idOf(doubt)),
})
