export {
  described,
  IN_THREAD,
  InvalidThread,
  type RunsThreads,
  standsFor,
  type ThreadDeclaration,
  type ThreadOptions,
  thread,
  threadOf,
} from './declaration.js'
export { ThreadDied } from './thread-call.js'
export { ThreadPool } from './thread-pool.js'
