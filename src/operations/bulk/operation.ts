import { lifecycleOf } from '../../phases/index.js'

/** The lifecycle of operations on many documents, and the collection of its documents. */
export const OPERATION_LIFECYCLE = 'phaselock-operation'
export const OPERATIONS_COLLECTION = 'phaselock.operations'

/** The actions of operations on each of their documents. */
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
/** An action that an operation can be started with. */
export type OperationAction = (typeof ACTIONS)[number]
/** An action, or `undo` of another operation, whose options name that operation. */
export type ActionName = OperationAction | 'undo'

/** The numbers of documents so far, by result. */
export interface OperationCounts {
  /** The number of documents that it has looked at. */
  readonly seen: number
  /** The number of documents that it has acted on. */
  readonly done: number
  /** The number of documents that needed no change. */
  readonly unchanged: number
  /** The number of documents that were left alone, such as held ones. */
  readonly skipped: number
  /** The number of documents that the database refused to write. */
  readonly failed: number
}

/** A reason why documents were left alone, or could not be written. */
export interface OperationTrouble {
  /** `skipped` if they were left alone, `failed` if the database refused the write. */
  readonly what: 'skipped' | 'failed'
  /** The reason, in words. */
  readonly reason: string
  /** The number of these documents. */
  readonly count: number
  /** The first few `_id`s. */
  readonly examples: readonly unknown[]
}

/** The documents to act on next, stored before the first of them is acted on: a process that was killed may have acted on some of them. */
export interface OperationPage {
  /** Their `_id`s, in the order of the actions. */
  readonly ids: readonly unknown[]
  /** For a cancel: the token of each one's holder. */
  readonly tokens?: readonly (string | null)[]
  /** In a trial: what each one was. */
  readonly before?: readonly Omit<TrialDocument, 'id'>[]
}

/** A document that a trial has acted on. */
export interface TrialDocument {
  readonly id: unknown
  /** Its fence before: a higher one shows that it was claimed since. */
  readonly fence: number
  /** The cause of its trouble before; null: it had none. */
  readonly cause: string | null
  /** The tokens of before: of its holder, and of its last step that has recorded an outcome. What is recorded under another one is of a later step. */
  readonly known: readonly string[]
}

/** How far a trial of an operation is: it acts on a few documents first, and on more once these have recorded an outcome. */
export interface OperationTrial {
  /** The number of documents of the present batch. */
  readonly size: number
  /** The number of these that it has acted on, or may have before it was killed. Once it is `size`, they are watched. */
  readonly done: number
  /** Those of the batch that it has acted on: the first 200. */
  readonly watched: readonly TrialDocument[]
  /** The maximum time to watch a batch, in ms. */
  readonly watchMs: number
  /** When that is over, by the server's clock; null or absent before the first look. */
  readonly until?: Date | null
}

/** An operation as it is stored. */
export interface OperationDocument {
  /** The id, such as `wake-4f2a9c1b`. */
  readonly _id: string
  /** Set to end it early. */
  state?: 'Aborted'
  /** The action on each of its documents. */
  readonly action: ActionName
  /** The lifecycle of the documents. */
  readonly lifecycle: string
  /** The filter of the documents, as Extended JSON: its keys may begin with $. */
  readonly filter: string
  /** The options of the action, as Extended JSON. */
  readonly options: string
  /** The person or program that started it. */
  readonly by: string
  /** The reason; null if none was given. */
  readonly why: string | null
  /** The cause that it was begun for, by the id of its row or as its documents recorded it; absent: none was named. */
  readonly cause?: string
  /** The number of documents after which it ends. */
  readonly atMost: number
  /** The maximum number of documents per second. */
  readonly rate: number
  /** The maximum number of documents at the same time. */
  readonly concurrency: number
  /** The number of documents that matched when it was started. */
  readonly expected: number
  /** The numbers of documents so far, by result. */
  readonly counts: OperationCounts
  /** The reasons why documents were left alone, or could not be written: the first 20. */
  readonly troubles: readonly OperationTrouble[]
  /** The time that it was worked on, in ms. */
  readonly workedMs: number
  /** The last document of the pages that are over. */
  readonly cursor?: { readonly id: unknown } | null
  /** Its trial; absent: it acts on all one after another. */
  readonly trial?: OperationTrial
  /** The page that is being worked on. */
  readonly page?: OperationPage | null
}

export const NO_COUNTS: OperationCounts = { seen: 0, done: 0, unchanged: 0, skipped: 0, failed: 0 }

const KEPT_FOR = '30d'

/**
 * The lifecycle of operations. Ended ones are kept for a month. A page is one step, so an operation takes one step for each of its pages.
 */
export const operationDefinition = lifecycleOf<OperationDocument>().define({
  name: OPERATION_LIFECYCLE,
  collection: OPERATIONS_COLLECTION,
  phases: {
    Running: { next: ['Done', 'Aborted'], entry: true },
    Done: { final: true, keepFor: KEPT_FOR },
    Aborted: { final: true, keepFor: KEPT_FOR },
  },
  rules: [{ when: 'Aborted', from: ['Running'], moveTo: 'Aborted' }],
  stepTimeout: '1h',
  concurrency: 4,
  backOff: { afterSteps: 1_000_000_000 },
})

/** The result for one document. `document` is its `_id`, if that differs from the id that was acted on. */
export type Acted =
  | 'done'
  /** It needed no change. */
  | 'unchanged'
  /** Left alone, with the reason. */
  | { readonly skipped: string; readonly document?: unknown }
  /** The database refuses to write it. */
  | { readonly failed: string; readonly document?: unknown }
