import type { Db, Document, Filter } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { ringerOf } from '../../doorbell/index.js'
import { hasFence, idText, LEASE_FIELDS, tokenOf } from '../../lock/index.js'
import { type Step, Unavailable } from '../../phases/index.js'
import { sleep, systemClock } from '../../time/index.js'
import { registeredLifecycles } from '../system/lifecycles.js'
import { type System, termsInForce } from '../system/system.js'
import { type Acting, actions, TooMany, unlessRefused } from './actions.js'
import { KeptChanges, nextChanges } from './changes.js'
import {
  type Acted,
  OPERATIONS_COLLECTION,
  type OperationCounts,
  type OperationDocument,
  type OperationPage,
  type OperationTrouble,
} from './operation.js'
import { fromStoredText, nextPage } from './selection.js'
import { isWatching, trialAfter, trialBefore, trialFields, type Watched, watchBatch } from './trial.js'

type OperationStep = Step<'Done' | 'Aborted', OperationDocument>
type Fields = Partial<OperationDocument>

/** The maximum number of documents of one page, and thus the most that may be acted on again after a crash, without effect. */
const MOST_PER_PAGE = 200
/** The time that a page takes. An abort is noticed within about that time, so a slow operation has small pages. */
const PAGE_MS = 1_000
const MOST_TROUBLES = 20
const MOST_EXAMPLES = 3

/**
 * Works on one page of an operation: its next documents, in the order of `_id`. They are stored before the first is acted on, and their
 * counts with the end of the step. So after a crash the same ones are tried again: each write finds its own mark (operation-writes.ts).
 */
export async function workOnPage(
  { db, doorbell }: Pick<System, 'db' | 'doorbell'>,
  doc: Readonly<OperationDocument>,
  step: OperationStep,
) {
  if (await isAborted(db, doc)) return step.moveTo('Aborted', { set: { page: null } })
  const startedMs = systemClock.monotonicMs()
  const [registered] = (await registeredLifecycles(db, '', { needed: false })).filter(
    ({ model }) => model.name === doc.lifecycle,
  )
  if (!registered) return step.park(`no replica has registered the lifecycle ${doc.lifecycle} in this database`)
  const { model } = registered
  const documents = protocolCollection(db, model.collection)
  const acting: Acting = {
    ...{ db, model, documents, options: fromStoredText(doc.options), by: doc.by, why: doc.why },
    terms: (await termsInForce(db, [model]))(model),
    operating: { operation: doc._id, by: doc.by, where: fromStoredText(doc.filter) },
  }
  const { trial } = doc
  if (trial && isWatching(trial)) return afterWatch(await watchBatch(documents, model, trial), step)
  const { ids, tokens, before } = doc.page ?? (await turnPage(doc, step, acting))
  const action = actions[doc.action]
  const fields = action.changes?.(acting.options)
  const { fence } = step
  const page = { operation: doc._id, first: doc.counts.seen, ids, fence, isRepeated: doc.page != null }
  const kept =
    fields && ids.length > 0 ? await KeptChanges.of(db, documents, acting.terms, { ...page, fields }) : undefined
  const acts: Acted[] = []
  try {
    await eachOf([...ids.entries()], doc.concurrency, async ([i, id]) => {
      // After an abort no further action begins; those in progress end. The same holds once another process may have the page because this
      // one stood still.
      if (step.signal.aborted) throw step.signal.reason
      if (step.leaseLeftMs() === 0) throw new Unavailable('its lease was not renewed in time')
      const turned = { number: doc.counts.seen + i, token: tokens?.[i] ?? null }
      // A page that is repeated has its documents as they were when it was turned: in a trial, one that was claimed since is another's.
      const isAsTurned = before?.[i] && hasFence(before[i].fence)
      const act = (isAsKept?: Filter<Document>) => action.act(meaning(acting, isAsKept, isAsTurned), id, turned)
      acts[i] = await unlessRefused(() => (kept ? kept.act(id, act) : act()))
    })
  } catch (error) {
    if (error instanceof TooMany) return step.wait(error.message, { for: '1m' })
    throw error
  }
  const result = new PageResult(doc)
  for (const [i, id] of ids.entries()) result.add(id, acts[i]!)
  if (result.hasDone && doorbell !== 'off') ringerOf(db).ring({ lifecycles: [model.name] })
  const tookMs = () => systemClock.monotonicMs() - startedMs
  await sleep(Math.max(0, (ids.length / doc.rate) * 1_000 - tookMs()), { signal: step.signal })
  const cursor = ids.length > 0 ? { id: ids.at(-1) } : (doc.cursor ?? null)
  const tried = trial && trialAfter(trial, { ids, ...(before && { before }) }, acts, page.isRepeated)
  const set: Fields = {
    ...result.fields(),
    ...(tried && { trial: tried }),
    cursor,
    page: null,
    workedMs: doc.workedMs + Math.round(tookMs()),
  }
  const isOver = ids.length === 0 || result.counts.seen >= doc.atMost
  return isOver ? step.moveTo('Done', { set }) : step.again({ set })
}

/** The end of a step that has looked at the documents of a trial. */
function afterWatch(watched: Watched, step: OperationStep) {
  const set: Fields = { trial: watched.trial }
  if (watched.kind === 'goOn') return step.again({ set })
  if (watched.kind === 'stop') return step.park(watched.reason, { set })
  return step.wait(watched.reason, { for: '1s', set })
}

/** The same context, restricted to documents that also match these conditions. */
const meaning = (acting: Acting, ...also: readonly (Filter<Document> | undefined)[]): Acting => ({
  ...acting,
  operating: {
    ...acting.operating,
    where: { $and: [acting.operating.where, ...also.filter((one) => one !== undefined)] },
  },
})

/** Reads the state from the database, because the steps of a chain see their owner's fields as they were some time ago. */
async function isAborted(db: Db, { _id }: Readonly<OperationDocument>): Promise<boolean> {
  const operations = protocolCollection<OperationDocument>(db, OPERATIONS_COLLECTION)
  return (await operations.findOne({ _id }, { projection: { state: 1 } }))?.state === 'Aborted'
}

async function turnPage(doc: Readonly<OperationDocument>, step: OperationStep, acting: Acting) {
  const perPage = Math.max(1, Math.min(MOST_PER_PAGE, Math.floor((doc.rate * PAGE_MS) / 1_000)))
  const untilWatch = doc.trial ? doc.trial.size - doc.trial.done : perPage
  const limit = Math.min(perPage, untilWatch, doc.atMost - doc.counts.seen)
  const page = limit <= 0 ? { ids: [] } : await pageAfter(doc, acting, limit)
  if (page.ids.length > 0) await step.checkpoint({ page })
  return page
}

async function pageAfter(
  { action, cursor, trial }: Readonly<OperationDocument>,
  acting: Acting,
  limit: number,
): Promise<OperationPage> {
  const { db, documents, model, operating, options } = acting
  if (action === 'undo') return { ids: await nextChanges(db, options['of'], cursor?.id, limit) }
  const projection = action === 'cancel' ? LEASE_FIELDS : trial ? trialFields(model) : { _id: 1 }
  const found = await nextPage(documents, operating.where, { after: cursor ?? undefined, limit, projection })
  const ids = found.map(({ _id }) => _id as unknown)
  if (trial) return { ids, before: found.map((one) => trialBefore(one, model)) }
  return action === 'cancel' ? { ids, tokens: found.map(tokenOf) } : { ids }
}

/** Calls a function for each, a few at a time; resolves when all are done. After the first error no further call begins. */
async function eachOf<T>(all: readonly T[], atOnce: number, act: (one: T) => Promise<void>): Promise<void> {
  const left = all.values()
  let failed = false
  const worker = async () => {
    for (const one of left) {
      if (failed) return
      try {
        await act(one)
      } catch (error) {
        failed = true
        throw error
      }
    }
  }
  const ended = await Promise.allSettled(Array.from({ length: Math.min(atOnce, all.length) }, worker))
  const rejected = ended.find((one) => one.status === 'rejected')
  if (rejected) throw rejected.reason
}

/** The results of an operation so far, including those of a page. */
class PageResult {
  hasDone = false
  counts: OperationCounts
  private readonly troubles: OperationTrouble[]

  constructor({ counts, troubles }: Readonly<OperationDocument>) {
    this.counts = counts
    this.troubles = [...troubles]
  }

  add(id: unknown, acted: Acted): void {
    const kind = typeof acted === 'string' ? acted : 'failed' in acted ? 'failed' : 'skipped'
    const { counts } = this
    this.counts = { ...counts, seen: counts.seen + 1, [kind]: counts[kind] + 1 }
    if (kind === 'done') this.hasDone = true
    if (typeof acted === 'object') {
      if ('failed' in acted) this.note(acted.document ?? id, ['failed', acted.failed])
      else this.note(acted.document ?? id, ['skipped', acted.skipped])
    }
  }

  fields(): Pick<OperationDocument, 'counts' | 'troubles'> {
    return { counts: this.counts, troubles: this.troubles }
  }

  /** Counts a reason. Further reasons beyond the first few are combined, because a message may name its document. */
  private note(id: unknown, [what, said]: readonly [OperationTrouble['what'], string]): void {
    const { troubles } = this
    const text = said.slice(0, 300)
    const known = (reason: string) => troubles.findIndex((one) => one.what === what && one.reason === reason)
    const reason = known(text) >= 0 || troubles.length < MOST_TROUBLES - 2 ? text : 'other reasons'
    const at = known(reason)
    const before = troubles[at] ?? { what, reason, count: 0, examples: [] }
    const examples =
      before.examples.length < MOST_EXAMPLES ? [...before.examples, idText(id).slice(0, 200)] : before.examples
    const now = { ...before, count: before.count + 1, examples }
    if (at >= 0) troubles[at] = now
    else troubles.push(now)
  }
}
