export { ANSWERED, type Batch, Batcher } from './batcher.js'
export { Mutex } from './mutex.js'
export { once } from './once.js'
