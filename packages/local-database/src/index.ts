export { type Attempt, DataDirUnusable, KeeperStuck, type LocalSource, NotEnoughSpace } from './engine/index.js'
export {
  joinLocalDatabase,
  type LocalDatabase,
  type LocalDatabaseOptions,
  openLocalDatabase,
} from './local-database.js'
