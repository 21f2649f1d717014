export { EngineMembership, type Log } from './engine-membership.js'
export type { ServerCommand } from './engine-process.js'
export {
  DataDirUnusable,
  type EngineFolder,
  FIRST_START_BYTES,
  openEngineFolder,
  programPath,
  requireFreeSpace,
} from './folder.js'
export {
  type Attempt,
  KeeperStuck,
  type LocalServer,
  NotHere,
  type OpenEngineOptions,
  openEngine,
} from './open-engine.js'
export type { LocalSource } from './state.js'
