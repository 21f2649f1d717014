import type { SyncContext } from './context.js'
import { COLLECTIONS, type Repository, type RepositorySync } from './documents.js'

/** The right of a step to write points and records of a repository, under a fence of its own. */
export interface Turn {
  readonly repository: Repository
  readonly fence: number
}

interface StepOfSync {
  /** That of the step's lease. */
  readonly fence: number
}

/**
 * Takes a turn for a step of a sync. Its first one makes the sync the one that may write: the former one gets no further turn.
 *
 * Invariants, each by one conditional write on the repository's document:
 * - of the syncs of a repository only the one that began last gets turns;
 * - each fence is higher than all that were issued for the repository before, whatever the clocks say. The fence of the lease isn't: two syncs are two
 *   documents, and the server's clock may be set back between them.
 * @returns an Error with the reason if there is no turn for this sync any more
 */
export async function takeTurn(
  context: SyncContext,
  { _id, repository, startedAt }: Readonly<RepositorySync>,
  step: StepOfSync,
): Promise<Turn | Error> {
  const filter = startedAt ? { _id: repository, sync: _id } : { _id: repository }
  const found = await issued(context, filter, step, { sync: { $literal: _id } })
  if (found && found.repository.state !== 'Deleted') return found
  const now = found?.repository ?? (await repositoriesOf(context).findOne({ _id: repository }))
  if (!now || now.state === 'Deleted') return new Error('the repository was deleted')
  return new Error(now.sync === undefined ? 'the repository was created anew' : `the sync ${now.sync} has begun since`)
}

/** The fence under which a repository's points are removed: higher than those of all its syncs. */
export async function lastFence(context: SyncContext, repository: string, step: StepOfSync): Promise<number> {
  return (await issued(context, { _id: repository }, step))?.fence ?? step.fence
}

async function issued(
  context: SyncContext,
  filter: object,
  { fence }: StepOfSync,
  more: object = {},
): Promise<Turn | undefined> {
  const next = { $max: [{ $add: [{ $ifNull: ['$writeFence', 0] }, 1] }, fence] }
  const repository = await repositoriesOf(context).findOneAndUpdate(filter, [{ $set: { ...more, writeFence: next } }], {
    returnDocument: 'after',
  })
  return repository ? { repository, fence: repository.writeFence! } : undefined
}

const repositoriesOf = ({ db }: SyncContext) => db.collection<Repository>(COLLECTIONS.repositories)
