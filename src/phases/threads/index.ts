export * from './declaration.js'
export { ThreadDied } from './thread-call.js'
export { ThreadPool } from './thread-pool.js'
