import { lifecycleOf } from '../../phases/index.js'

/** The lifecycle of operations on many documents, and where its documents are. */
export const OPERATION_LIFECYCLE = 'phaselock-operation'
export const OPERATIONS_COLLECTION = 'phaselock.operations'

/** What an operation does to each of its documents. */
export const ACTIONS = [
  'wake',
  'unpark',
  'set-state',
  'redo',
  'migrate',
  'pause',
  'resume',
  'cancel',
  'remove',
] as const
/** What an operation that is asked for does to each of its documents. */
export type OperationAction = (typeof ACTIONS)[number]
/** `undo`: of another operation, which says what of. */
export type ActionName = OperationAction | 'undo'

/** What has become of the documents so far. */
export interface OperationCounts {
  /** How many it has looked at. */
  readonly seen: number
  /** How many it has acted on. */
  readonly done: number
  /** How many were as they are to be already. */
  readonly unchanged: number
  /** How many were left alone, such as held ones. */
  readonly skipped: number
  /** How many the database refused to write. */
  readonly failed: number
}

/** Why documents were left alone, or could not be written. */
export interface OperationTrouble {
  /** Left alone, or refused by the database. */
  readonly what: 'skipped' | 'failed'
  /** Why, in words. */
  readonly reason: string
  /** How many of them. */
  readonly count: number
  /** The first few `_id`s. */
  readonly examples: readonly unknown[]
}

/** Documents that are acted upon next, or were when whoever ran it was killed: stored before the first of them is. */
export interface OperationPage {
  /** Their `_id`s, in the order in which they are acted upon. */
  readonly ids: readonly unknown[]
  /** To cancel: the token that each was held by. */
  readonly tokens?: readonly (string | null)[]
}

/** An operation as it is stored. */
export interface OperationDocument {
  /** Such as `wake-4f2a9c1b`. */
  readonly _id: string
  /** Somebody wants it to end. */
  state?: 'Aborted'
  /** What it does to each of its documents. */
  readonly action: ActionName
  /** Whose documents. */
  readonly lifecycle: string
  /** Which of them, as Extended JSON: a filter's keys may begin with $. */
  readonly filter: string
  /** What the action needs, as Extended JSON. */
  readonly options: string
  /** Who began it. */
  readonly by: string
  /** Why; null: nobody has said. */
  readonly why: string | null
  /** It ends when it has looked at so many. */
  readonly atMost: number
  /** Documents in a second, at most. */
  readonly rate: number
  /** Documents at once, at most. */
  readonly concurrency: number
  /** How many matched when it was begun. */
  readonly expected: number
  /** What has become of the documents so far. */
  readonly counts: OperationCounts
  /** Why documents were left alone, or could not be written: the first 20 reasons. */
  readonly troubles: readonly OperationTrouble[]
  /** How long it has worked, in ms. */
  readonly workedMs: number
  /** The last one of the pages that are over. */
  readonly cursor?: { readonly id: unknown } | null
  /** Those that are acted upon now. */
  readonly page?: OperationPage | null
}

export const NO_COUNTS: OperationCounts = { seen: 0, done: 0, unchanged: 0, skipped: 0, failed: 0 }

const KEPT_FOR = '30d'

/** Ended ones are kept for a month. A page is one step, so an operation takes as many as it has pages. */
export const operationDefinition = lifecycleOf<OperationDocument>().define({
  name: OPERATION_LIFECYCLE,
  collection: OPERATIONS_COLLECTION,
  phases: {
    Running: { next: ['Done', 'Aborted'], entry: true },
    Done: { final: true, keepFor: KEPT_FOR },
    Aborted: { final: true, keepFor: KEPT_FOR },
  },
  rules: [{ when: 'Aborted', from: ['Running'], goTo: 'Aborted' }],
  stepTimeout: '1h',
  concurrency: 4,
  backOff: { afterSteps: 1_000_000_000 },
})

/** What became of one document. `document`: its `_id`, where that isn't what was acted on. */
export type Acted =
  | 'done'
  /** It was as it is to be already. */
  | 'unchanged'
  /** Left alone, and why. */
  | { readonly skipped: string; readonly document?: unknown }
  /** The database refuses to write it. */
  | { readonly failed: string; readonly document?: unknown }
