export { type Batch, Batcher } from './batcher.js'
