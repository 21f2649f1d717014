export type { SyncLifecycleSettings } from './definition.js'
export type {
  FileRecord,
  Repository,
  RepositoryFields,
  RepositorySync,
  SyncCounters,
  Synced,
  SyncSchedule,
  SyncStages,
} from './documents.js'
export {
  type Found,
  NoSuchRepository,
  OtherModel,
  Repositories,
  type RepositoriesOptions,
  repositories,
  type SearchOptions,
} from './repositories.js'
export { InvalidRepository } from './repository-fields.js'
export type { ShownRepository, ShownSync } from './show.js'
