export { DataDirUnusable, KeeperStuck, type LocalAttempt, type LocalSource, NotEnoughSpace } from './engine/index.js'
export {
  joinLocalDatabase,
  type LocalDatabase,
  type LocalDatabaseOptions,
  openLocalDatabase,
} from './local-database.js'
