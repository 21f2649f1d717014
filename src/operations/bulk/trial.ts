import type { Collection, Document } from 'mongodb'
import {
  fenceOf,
  hasToken,
  idKey,
  LEASE_FIELDS,
  type RecordedOutcome,
  readOwnFields,
  tokenOf,
} from '../../lock/index.js'
import { numbered } from '../../options/index.js'
import { type LifecycleModel, troubleOf } from '../../phases/index.js'
import { formatMs } from '../../time/index.js'
import { idText } from '../system/document-id.js'
import type { Acted, OperationPage, OperationTrial, TrialDocument } from './operation.js'

/** The first batch may have this many documents, and no more than this many of any batch are watched. */
export const MOST_WATCHED = 200
/** Each batch is that many times the one before. */
export const GROWTH = 10
const MOST_NAMED = 3

/**
 * A trial of an operation: it acts on a few documents first, waits for what they record next, and goes on with tenfold only while none of them fails
 * again. Where it stands is a part of the operation's document, and is stored with the end of a step, as its counts are. So a process that is killed
 * loses nothing of it, and there is one trial however many replicas work on operations.
 *
 * Invariant: no document beyond a batch is acted on before all watched ones of the batch have recorded an outcome, and none of these is a failure for
 * the same cause.
 */
export const isWatching = ({ done, size }: OperationTrial): boolean => done >= size

/** The fields of a document to be kept before it is acted on. */
export const trialFields = ({ settings }: LifecycleModel): Document => ({
  ...{ ...LEASE_FIELDS, _id: 1, phase: 1, fence: 1 },
  ...Object.fromEntries(['error', 'history.outcome', 'history.by'].map((name) => [`${settings.progress}.${name}`, 1])),
})

/** What is kept of a document before it is acted on. */
export const trialBefore = (document: Document, model: LifecycleModel): Omit<TrialDocument, 'id'> => ({
  fence: fenceOf(document),
  cause: troubleOf(document, model)?.cause ?? null,
  known: [tokenOf(document), lastStepOf(document, model)].filter((token) => token !== null),
})

/** What a claim without a step records, or others than holders do, or a step that goes on. */
const NO_OUTCOMES: ReadonlySet<unknown> = new Set<RecordedOutcome>([
  ...(['released', 'owner', 'checkpoint', 'rule', 'deadline', 'remove'] as const),
])

/** The token under which the outcome of a document's last step is recorded; null: there is none. */
function lastStepOf(document: Document, { settings }: LifecycleModel): string | null {
  const history: unknown = Object(document[settings.progress])['history']
  const entries = (Array.isArray(history) ? history : []).map((entry) => Object(entry) as Document)
  const by: unknown = entries.findLast(({ outcome }) => !NO_OUTCOMES.has(outcome))?.['by']
  return typeof by === 'string' ? by : null
}

const NEVER_CLAIMED = { fence: 0, cause: null, known: [] }

/**
 * The trial after a page of its batch. What a repeated page leaves alone may have been acted on before: it counts as well, else the batch would be
 * larger than said. Only what has the mark of the operation is watched.
 */
export function trialAfter(
  trial: OperationTrial,
  { ids, before = [] }: OperationPage,
  acts: readonly Acted[],
  isRepeated: boolean,
): OperationTrial {
  const done = ids.flatMap((id, i) => (acts[i] === 'done' ? [{ id, ...(before[i] ?? NEVER_CLAIMED) }] : []))
  const maybe = isRepeated ? acts.filter((act) => typeof act === 'object' && 'skipped' in act).length : 0
  return {
    ...trial,
    done: trial.done + done.length + maybe,
    watched: [...trial.watched, ...done].slice(0, MOST_WATCHED),
  }
}

/** What a look at the watched documents of a batch says. */
export type Watched =
  /** All have recorded an outcome, and the operation goes on. */
  | { readonly kind: 'goOn'; readonly trial: OperationTrial }
  | { readonly kind: 'wait'; readonly reason: string; readonly trial: OperationTrial }
  /** It stops, until a person says that it goes on: with another batch of the same size. */
  | { readonly kind: 'stop'; readonly reason: string; readonly trial: OperationTrial }

/** Looks at what the documents of a batch have recorded since they were acted on. */
export async function watchBatch(
  documents: Collection,
  model: LifecycleModel,
  trial: OperationTrial,
): Promise<Watched> {
  const { watched, size, watchMs } = trial
  const rows = await readOwnFields((how) =>
    documents
      .aggregate(
        [
          { $match: { _id: { $in: watched.map(({ id }) => id) } } },
          { $project: { _id: 0, document: '$$ROOT', now: '$$NOW' } },
          {
            $project: Object.fromEntries(
              ['now', ...Object.keys(trialFields(model)).map((name) => `document.${name}`)].map((name) => [name, 1]),
            ),
          },
        ],
        how,
      )
      .toArray(),
  )
  const found = new Map(
    (rows as unknown as { document: Document }[]).map(({ document }) => [idKey(document['_id']), document]),
  )
  const now = rows[0]?.['now'] as Date | undefined
  const next = { ...trial, done: 0, watched: [], until: null }
  const results = watched.map((one) => ({ one, ...resultOf(one, found.get(idKey(one.id)), model) }))
  const open = results.filter(({ isOpen }) => isOpen)
  const failed = failedAgain(results)
  const what = `the ${watched.length < size ? `${watched.length} watched of ${size}` : watched.length} that it acted on`
  if (failed.length > 0) {
    const names = failed.slice(0, MOST_NAMED).map(({ one }) => idText(one.id))
    const { cause, text } = failed[0]!.trouble!
    return {
      kind: 'stop',
      reason: `of ${what} ${failed.length} failed for the same cause, ${cause} (${text}): ${names.join(', ')}${failed.length > MOST_NAMED ? ', ...' : ''}; unpark it to try ${numbered(size, 'more document', 'more documents')}, or abort it`,
      trial: next,
    }
  }
  if (open.length === 0 || !now) return { kind: 'goOn', trial: { ...next, size: size * GROWTH } }
  const until = trial.until ?? new Date(now.getTime() + watchMs)
  if (now < until)
    return {
      kind: 'wait',
      reason: `it watches ${what}: ${open.length} have recorded nothing yet`,
      trial: { ...trial, until },
    }
  const names = open.slice(0, MOST_NAMED).map(({ one }) => idText(one.id))
  return {
    kind: 'stop',
    reason: `of ${what} ${open.length} have recorded nothing within ${formatMs(watchMs)}: ${names.join(', ')}${open.length > MOST_NAMED ? ', ...' : ''}; unpark it to try ${numbered(size, 'more document', 'more documents')}, or abort it`,
    trial: next,
  }
}

/** A claim alone raises the fence: it may be let go of without a step. So the outcome of a new one has to be there. */
function resultOf({ fence, known }: TrialDocument, document: Document | undefined, model: LifecycleModel) {
  // Its own step or a person has removed it.
  if (!document) return { isOpen: false, trouble: undefined }
  const step = lastStepOf(document, model)
  const isOpen = fenceOf(document) <= fence || hasToken(document) || step === null || known.includes(step)
  return { isOpen, trouble: isOpen ? undefined : troubleOf(document, model) }
}

type Result = { readonly one: TrialDocument } & ReturnType<typeof resultOf>

/** Those that failed for a cause that one of the batch had before, or for the same new one as another of them. */
function failedAgain(results: readonly Result[]): readonly Result[] {
  const before = new Set(results.flatMap(({ one }) => one.cause ?? []))
  const counts = new Map<string, number>()
  for (const { trouble } of results) if (trouble) counts.set(trouble.cause, (counts.get(trouble.cause) ?? 0) + 1)
  return results.filter(
    ({ trouble }) => trouble && (before.has(trouble.cause) || counts.get(trouble.cause)! > 1 || results.length === 1),
  )
}
