export { EngineMembership, type Log } from './engine-membership.js'
export type { ServerCommand } from './engine-process.js'
export {
  DataDirUnusable,
  existingEngineFolder,
  FIRST_START_BYTES,
  NotEnoughSpace,
  openEngineFolder,
  programPath,
  requireFreeSpace,
} from './folder.js'
export { joinOrWait, KeeperStuck, type LocalAttempt, type LocalServer, NotHere, openEngine } from './open-engine.js'
export type { LocalSource } from './state.js'
