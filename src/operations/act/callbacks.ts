import { learnSharding } from '../../database/index.js'
import { CALLBACK_NAMES, type EntryName, readOwnFields, retryOutbox, undeliveredOutboxes } from '../../lock/index.js'
import { typed } from '../../options/index.js'
import { type DocumentRef, documentMeant } from '../inspect/find.js'
import { type UndeliveredCallback, undeliveredOf } from '../inspect/undelivered.js'
import { recorded } from '../system/audit.js'
import { Refused } from '../system/errors.js'
import { modelOf, type System } from '../system/system.js'
import { type Done, doneTo, nameOf } from './as-owner.js'

/**
 * Documents with undelivered callbacks. Those that wait for a person come first, then those that have waited longest. At most `limit` of
 * a lifecycle.
 * @example await listUndelivered(system) // { undelivered: [{ lifecycle: 'order', _id: 'order-4711', callback: 'onMoved', tries: 20, error: 'the shop is away', dueAt: null, ... }], now }
 * @throws UsageError for an unknown lifecycle
 */
export async function listUndelivered(
  system: System,
  lifecycle?: string,
  limit = 1_000,
): Promise<{ readonly undelivered: readonly UndeliveredCallback[]; readonly now: Date }> {
  const models = lifecycle === undefined ? system.models : [modelOf(system, lifecycle)]
  let now = new Date(0)
  const all = await Promise.all(
    models.map(async (model) => {
      const { collection, settings } = model
      if (!settings.callbacks) return []
      const of = {
        collection: system.db.collection(collection),
        progress: settings.progress,
        callbacks: [...CALLBACK_NAMES, 'delete' as const],
      }
      const rows = await readOwnFields((how) => undeliveredOutboxes(of, limit, how))
      const beside = system.models.filter((one) => one !== model && one.collection === collection)
      return rows.flatMap(({ document, now: readAt }) => {
        now = readAt
        const isAnothers = beside.some(({ phases }) => phases.has(document.phase))
        return isAnothers ? [] : (undeliveredOf(document, model) ?? [])
      })
    }),
  )
  const rank = ({ dueAt, at }: UndeliveredCallback) => (dueAt ? 1 : 0) * 1e15 + at.getTime()
  return { undelivered: all.flat().sort((a, b) => rank(a) - rank(b)), now }
}

/** The callback of a document that was retried or skipped. */
export interface Retried extends Done {
  readonly callback: EntryName
  readonly seq: number
  /** True if this call was given up for good. */
  readonly skipped: boolean
}

/**
 * Retries the next call of a document's callbacks now, or gives that call up for good.
 * @example await retryCallbacks(system, { id: 'order-4711' }) // { lifecycle: 'order', _id: 'order-4711', callback: 'onMoved', seq: 7, skipped: false }
 * @throws NotFound, UsageError; Refused if nothing is undelivered, or the call is being delivered now
 */
export async function retryCallbacks(
  system: System,
  ref: DocumentRef,
  { skip = false }: { readonly skip?: boolean | undefined } = {},
): Promise<Retried> {
  const found = await documentMeant(system, ref, { removed: true })
  const { lifecycle, document } = found
  const model = modelOf(system, lifecycle)
  const id: unknown = document['_id']
  const undelivered = undeliveredOf(document, model)
  const name = nameOf(doneTo(found))
  const advice = `see: phaselock show ${typed(ref.id)}`
  if (!undelivered)
    throw new Refused(`${name} has nothing to tell its callbacks`, { reason: 'nothingToTell', lifecycle, id }, advice)
  const { callback, seq, removed } = undelivered
  const { progress } = model.settings
  if (callback === 'damaged')
    throw new Refused(
      `${name}: what its callbacks are to be told is damaged`,
      { reason: 'nothingToTell', lifecycle, id },
      `mend its ${progress}.outbox by hand, or remove it`,
    )
  const of = { collection: system.db.collection(model.collection), progress }
  const about = {
    action: skip ? 'callbacks skip' : 'callbacks retry',
    lifecycle,
    document: id,
    before: { callback, seq },
  }
  await learnSharding(system.db, [model.collection])
  const act = () => retryOutbox(of, id, { seq, skip, removed })
  const isDone = await recorded(system, about, act, (done) => ({ outcome: done ? 'done' : 'refused' }))
  if (isDone) return { ...doneTo(found), callback, seq, skipped: skip }
  throw new Refused(`${name}: ${callback} is being told just now`, { reason: 'beingTold', lifecycle, id }, advice)
}
