export { type Batch, Batcher } from './batcher.js'
export { Mutex } from './mutex.js'
