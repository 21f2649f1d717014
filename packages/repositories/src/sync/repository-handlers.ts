import { isSourceProblem } from '../source/index.js'
import { CollectionMissing, InvalidCollection, NotOurCollection } from '../vectors/index.js'
import { collectionFor, collectionsOf, type SyncContext } from './context.js'
import type { repositoryDefinition } from './definition.js'
import type { Repository } from './documents.js'
import { repositoryProblems, scheduleIdOf, scheduleOf } from './repository-fields.js'
import { lastFence } from './turn.js'

type Steps = ReturnType<typeof repositoryDefinition>['$step']
type Doc = Readonly<Repository>

/** The handlers of `repository`. */
export const repositoryHandlers = (context: SyncContext) => ({
  Creating: (doc: Doc, step: Steps['Creating']) => ready(context, doc, step),
  Updating: (doc: Doc, step: Steps['Updating']) => ready(context, doc, step),
  Deleting: (doc: Doc, step: Steps['Deleting']) => deleting(context, doc, step),
})

/** Makes sure that it can be read, that its collection and its schedule are there, and asks for a sync, a step for each. */
async function ready(context: SyncContext, doc: Doc, step: Steps['Creating']) {
  const { schedules } = context
  if (step.name === undefined) {
    const problems = repositoryProblems(doc._id, doc)
    if (problems.length > 0) return step.park(problems.join('; '))
    try {
      await context.sourceOf(doc).head(doc.branch, step)
    } catch (error) {
      if (isSourceProblem(error)) return step.park(error.message)
      throw error
    }
    return step.again({ step: 'collection' })
  }
  if (step.name === 'collection') {
    try {
      await collectionFor(context, doc.collection, step.signal)
    } catch (error) {
      if (error instanceof NotOurCollection || error instanceof InvalidCollection) return step.park(error.message)
      throw error
    }
    return step.again({ step: 'schedule' })
  }
  if (step.name === 'schedule') {
    await schedules.upsert(scheduleIdOf(doc._id), scheduleOf(doc), { by: 'phaselock-repositories' })
    return step.again({ step: 'sync' })
  }
  // Where one is open, this one is Skipped: that one compares with the current settings.
  await schedules.run(scheduleIdOf(doc._id), { by: 'phaselock-repositories' })
  return step.moveTo('Created')
}

async function deleting(context: SyncContext, doc: Doc, step: Steps['Deleting']) {
  const { db, store, records, schedules } = context
  if (step.name === undefined) {
    await schedules.remove(scheduleIdOf(doc._id))
    return step.again({ step: 'syncs' })
  }
  if (step.name === 'syncs') {
    const open = await context.cancelSyncs(doc._id)
    return open > 0 ? step.wait('its sync to end', { on: 'sync', for: '1s' }) : step.again({ step: 'points' })
  }
  if (step.name === 'points') {
    const fence = await lastFence(context, doc._id, step)
    const { signal } = step
    for (const collection of await collectionsOf(db, doc)) {
      try {
        await store.delete(collection, { repository: doc._id }, { fence, signal })
      } catch (error) {
        if (!(error instanceof CollectionMissing)) throw error
      }
    }
    return step.again({ step: 'records' })
  }
  await records.removeAll(doc._id)
  return step.moveTo('Deleted')
}
