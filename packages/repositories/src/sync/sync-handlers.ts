import { type Outcome, type Step, StepAborted, Unavailable } from 'phaselock'
import { EmbeddingsRefused } from '../embeddings/index.js'
import { CommitGone, isSourceProblem, type Source } from '../source/index.js'
import { elapsed } from '../time.js'
import { CollectionMissing } from '../vectors/index.js'
import { checkStore } from './checking.js'
import {
  collectionFor,
  collectionsOf,
  repositoryOf,
  type SyncContext,
  serverTime,
  settingsOf,
  versionOf,
} from './context.js'
import type { syncDefinition } from './definition.js'
import {
  COLLECTIONS,
  NO_COUNTERS,
  NO_STAGES,
  type Repository,
  type RepositorySync,
  type SyncCounters,
  type Synced,
  type SyncStages,
} from './documents.js'
import { indexBatch, mayBeText } from './index-batch.js'
import { listed } from './listing.js'
import type { SyncOutcome } from './metrics.js'
import { type Turn, takeTurn } from './turn.js'

type Steps = ReturnType<typeof syncDefinition>['$step']
type Doc = Readonly<RepositorySync>

/** The errors in a row after which a sync has failed: it is open for some eight minutes of pauses, and the next one begins anew. */
const TRIES = 10
/** The claims of one step after which the sync has failed: each replica before has ended without a word. */
const MOST_CLAIMS = 5
/** The rounds of listing again after which a sync has failed: a store that still isn't right, or a commit that is always gone. */
const ROUNDS = 3
/** The time that a sync waits for access that it had when it began. */
const ACCESS_MS = 3_600_000

/** The handlers of `repository-sync`. */
export const syncHandlers = (context: SyncContext) => ({
  Listing: guarded(context, async (doc, step: Steps['Listing'], turn) => {
    const { repository } = turn
    const { signal } = step
    try {
      const source = context.sourceOf(repository)
      if (step.name !== 'plan') {
        const head = await source.head(repository.branch, { signal })
        const settings = settingsOf(context, repository)
        const collection = await collectionFor(context, repository.collection, signal)
        const set = { head, settings, collection, status: 'running' as const, ...(await startOf(context, doc)) }
        const { synced } = repository
        const isSame =
          synced?.commit === head.commit && synced.settings === settings && synced.collection === collection
        // Nothing to list; the points are counted all the same.
        if (isSame && !repository.indexing && !doc.rounds) {
          const { files, chunks, records: untouched } = synced
          return step.moveTo('Checking', { set: { ...set, expected: { files, chunks, untouched } } })
        }
        return step.again({ step: 'plan', set })
      }
      return await planned(context, doc, step, turn, source)
    } catch (error) {
      const { rounds = 0 } = doc
      const isGone = error instanceof CommitGone
      if (isGone && rounds < ROUNDS)
        return step.wait(error.message, { on: 'source', set: { head: undefined, rounds: rounds + 1 } })
      if (!isGone && !isSourceProblem(error)) throw error
      // The head could be read a moment ago: a token has expired.
      if (!isGone && step.name === 'plan' && step.waitedMs < ACCESS_MS)
        return step.wait(error.message, { on: 'access' })
      return step.moveTo('Failed', { set: await ended(context, doc, step.fence, error) })
    }
  }),

  Indexing: guarded(context, async (doc, step: Steps['Indexing'], turn) => {
    const { head, collection, plan, next = 0, toIndex = 0 } = doc
    if (!head || !collection || plan === undefined || next >= toIndex)
      return step.moveTo('Removing', { set: { next: 0 } })
    const { repository, fence } = turn
    // Its owner has changed what is indexed, and how: the rest of this plan would be of the former settings.
    if (settingsOf(context, repository) !== doc.settings) return step.moveTo('Listing')
    const { files = [] } = await context.records.batch(doc._id, plan, 'index', next)
    const { attempt, signal } = step
    try {
      const source = context.sourceOf(repository)
      const work = { repository, source, head, collection, files, fence, attempt, signal }
      const { counters, stages } = await indexBatch(context, work)
      context.metrics.indexed(files.length, counters)
      return step.again({
        set: {
          next: next + 1,
          filesIndexed: (doc.filesIndexed ?? 0) + files.length,
          counters: sum(doc.counters ?? NO_COUNTERS, counters),
          stages: sum(doc.stages ?? NO_STAGES, stages),
        },
      })
    } catch (error) {
      const { rounds = 0 } = doc
      const isGone = error instanceof CommitGone || error instanceof CollectionMissing
      if (isGone && rounds < ROUNDS) return step.moveTo('Listing', { set: { rounds: rounds + 1 } })
      if (isSourceProblem(error) && step.waitedMs < ACCESS_MS) return step.wait(error.message, { on: 'access' })
      const isRefused = error instanceof EmbeddingsRefused && !mayBeText(error)
      if (!isGone && !isSourceProblem(error) && !isRefused) throw error
      return step.moveTo('Failed', { set: await ended(context, doc, step.fence, error) })
    }
  }),

  Removing: guarded(context, async (doc, step: Steps['Removing'], turn) => {
    const { collection, plan, next = 0, toRemove = 0, repository } = doc
    if (!collection || plan === undefined || next >= toRemove) return step.moveTo('Checking', { set: { next: 0 } })
    const { removed = [] } = await context.records.batch(doc._id, plan, 'remove', next)
    const { fence } = turn
    const { signal } = step
    await ifThere(context.store.delete(collection, { repository, paths: removed }, { fence, signal }))
    await context.records.remove(repository, removed, fence)
    return step.again({ set: { next: next + 1 } })
  }),

  Checking: guarded(context, async (doc, step: Steps['Checking'], turn) => {
    const { head, collection, settings, rounds = 0, repository: id } = doc
    const { repository, fence } = turn
    if (!head || !collection || settings === undefined || settings !== settingsOf(context, repository))
      return step.moveTo('Listing')
    const { signal } = step
    const checked = await checkStore(context, id, collection, doc, { fence, signal })
    if (checked.problem !== undefined) {
      const counters = sum(doc.counters ?? NO_COUNTERS, { mended: checked.damaged })
      const text = checked.problem
      if (rounds < ROUNDS) {
        step.log.warn(`${text}; ${checked.damaged} files are indexed again`)
        return step.moveTo('Listing', { set: { rounds: rounds + 1, counters } })
      }
      return step.moveTo('Failed', {
        set: await ended(context, doc, step.fence, new Error(`${text}, after ${rounds} rounds of mending`)),
      })
    }
    const { files, chunks, records, notEmbedded } = checked
    const at = await serverTime(context.db, doc._id)
    const synced: Synced = { ...head, at, settings, collection, files, chunks, records, fence }
    await storeSynced(context, repository, synced, signal, notEmbedded > 0)
    await context.records.dropPlans(doc._id, step.fence)
    // Its owner may have changed it in the meantime; the sync that this asked for was Skipped, because this one is open.
    const now = await repositoryOf(context.db, id)
    if (now && settings !== settingsOf(context, now)) return step.moveTo('Listing')
    const { startedAt = at } = doc
    context.metrics.ended('completed')
    const set = { status: 'completed' as const, completedAt: at, durationSeconds: seconds(startedAt, at) }
    return step.moveTo('Completed', { set: { ...set, result: { commit: head.commit, files, chunks } } })
  }),

  Cancelling: async (doc: Doc, step: Steps['Cancelling']) =>
    step.moveTo('Failed', {
      set: await ended(context, doc, step.fence, new Error('the sync was cancelled'), 'cancelled'),
    }),
})

/**
 * A handler whose errors, too many in a row, end the sync as Failed: one that is parked would keep all later ones from beginning. A step that ends by
 * its timeout, and one that its replica doesn't survive, count as well.
 */
function guarded<S extends Steps['Listing' | 'Indexing' | 'Removing' | 'Checking'], O>(
  context: SyncContext,
  handler: (doc: Doc, step: S, turn: Turn) => Promise<O>,
) {
  return async (doc: Doc, step: S): Promise<O | Outcome<'Failed', RepositorySync>> => {
    const fail = async (problem: Error) =>
      (step as Step<'Failed', RepositorySync>).moveTo('Failed', { set: await ended(context, doc, step.fence, problem) })
    const { claims = 1, error: last } = step.progress
    if (claims > MOST_CLAIMS)
      return fail(new Error(`${claims - 1} replicas in a row were lost while they worked on its step in ${doc.phase}`))
    // The handler didn't return at the last try either, whatever its signal said.
    if (step.attempt > TRIES) return fail(new Error(last?.message ?? `${TRIES} errors in a row`))
    try {
      const turn = await takeTurn(context, doc, step)
      return turn instanceof Error ? await fail(turn) : await handler(doc, step, turn)
    } catch (error) {
      const reason: unknown = step.signal.aborted ? step.signal.reason : undefined
      const isLate = reason instanceof StepAborted && reason.why === 'step timeout'
      // What a call makes of the abort, such as an outage, isn't the cause.
      if (isLate && step.attempt < TRIES) throw reason
      if (!isLate && (error instanceof Unavailable || reason !== undefined || step.attempt < TRIES)) throw error
      const problem = isLate ? reason : error
      return fail(problem instanceof Error ? problem : new Error(String(problem)))
    }
  }
}

/** Compares, and stores the plan in batches. */
async function planned(
  context: SyncContext,
  doc: Doc,
  step: Steps['Listing'],
  { repository, fence }: Turn,
  source: Source,
) {
  const { head } = doc
  if (!head) return step.again()
  const started = elapsed()
  const version = versionOf(context, repository)
  const list = await listed(source, head, repository, context.records, version, step.signal)
  // From here on its points are a mixture, until Checking passes: the commit alone doesn't say any more that it is in sync.
  await repositoriesOf(context).updateOne({ _id: repository._id }, { $max: { indexing: fence } })
  const plan = await context.records.plan(doc._id, step.fence, list.changes)
  const { added, changed, renamed, gone, unchanged } = list.changes
  const found = {
    listed: list.listed,
    unchanged,
    // A further round indexes again what a former one has counted.
    ...(doc.rounds && (doc.plan !== undefined || doc.counters?.mended)
      ? {}
      : { added: added.length, changed: changed.length, renamed: renamed.length, deleted: gone.length }),
  }
  return step.moveTo('Indexing', {
    set: {
      plan: step.fence,
      from: fence,
      expected: { files: list.listed, untouched: list.untouched },
      ...plan,
      next: 0,
      filesIndexed: 0,
      counters: { ...NO_COUNTERS, ...doc.counters, ...found },
      stages: sum(doc.stages ?? NO_STAGES, { listingMs: Math.round(elapsed() - started) }),
    },
  })
}

/**
 * Stores what was checked, unless a later sync has; then removes the points from all other collections. With files that the model failed on
 * it stays marked, so that the next sync lists and tries them again, at the same commit too.
 */
async function storeSynced(
  context: SyncContext,
  repository: Repository,
  synced: Synced,
  signal: AbortSignal,
  keepsMark: boolean,
) {
  const { _id } = repository
  const { fence } = synced
  const older = (field: string) => ({ $or: [{ [field]: { $exists: false } }, { [field]: { $lte: fence } }] })
  const filter = { _id, $and: [older('synced.fence'), older('indexing')] } as object
  const { matchedCount } = await repositoriesOf(context).updateOne(filter, {
    $set: { synced },
    ...(keepsMark ? {} : { $unset: { indexing: '' } }),
  })
  if (matchedCount === 0) return
  // Not only from the one before: a try that stored `synced` may have failed here.
  for (const collection of await collectionsOf(context.db, repository))
    if (collection !== synced.collection)
      await ifThere(context.store.delete(collection, { repository: _id }, { fence, signal }))
}

/** A collection that was deleted has none of the points; Checking makes it again. */
async function ifThere(deleting: Promise<void>): Promise<void> {
  try {
    await deleting
  } catch (error) {
    if (!(error instanceof CollectionMissing)) throw error
  }
}

const repositoriesOf = ({ db }: SyncContext) => db.collection<Repository>(COLLECTIONS.repositories)

const startOf = async ({ db }: SyncContext, { _id, startedAt }: Doc) =>
  startedAt ? {} : { startedAt: await serverTime(db, _id), counters: NO_COUNTERS, stages: NO_STAGES }

/** The fields of a sync that has failed. */
async function ended(
  { db, records, metrics }: SyncContext,
  doc: Doc,
  fence: number,
  error: Error,
  outcome: SyncOutcome = 'failed',
) {
  await records.dropPlans(doc._id, fence)
  const at = await serverTime(db, doc._id)
  metrics.ended(outcome)
  return {
    status: 'failed' as const,
    completedAt: at,
    durationSeconds: seconds(doc.startedAt ?? at, at),
    error: { name: error.name, message: error.message },
  }
}

const seconds = (from: Date, to: Date): number => Math.max(0, (to.getTime() - from.getTime()) / 1_000)

function sum<T extends SyncCounters | SyncStages>(one: T, other: Partial<T>): T {
  const added = Object.entries(other).map(([name, value]) => [
    name,
    ((one as unknown as Record<string, number>)[name] ?? 0) + (value as number),
  ])
  return { ...one, ...Object.fromEntries(added) }
}
