import type { ShownRepository, ShownSync } from '../sync/index.js'

const REPOSITORY = [
  'url',
  'source',
  'branch',
  'include',
  'exclude',
  'collection',
  'schedule',
  'isActive',
  'phase',
  'synced',
] as const
const SYNC = [
  'status',
  'phase',
  'startedAt',
  'completedAt',
  'durationSeconds',
  'head',
  'filesIndexed',
  'filesToIndex',
  'filesPerSecond',
  'secondsLeft',
  'counters',
  'stages',
  'result',
  'error',
] as const

/** A repository for other services: without the fields of leases and of the lifecycle's progress. */
export const repositoryAnswer = ({ repository, sync, text }: ShownRepository) => ({
  id: repository._id,
  text,
  ...picked(repository, REPOSITORY),
  ...(sync ? { sync: syncAnswer(sync) } : {}),
})

export const syncAnswer = (sync: ShownSync) => ({ id: sync._id, ...picked(sync, SYNC) })

const picked = <T extends object, K extends keyof T>(from: T, names: readonly K[]): Partial<Pick<T, K>> =>
  Object.fromEntries(names.flatMap((name) => (from[name] === undefined ? [] : [[name, from[name]]]))) as Partial<
    Pick<T, K>
  >
