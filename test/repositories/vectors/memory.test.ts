import { memory } from '../../../packages/repositories/src/vectors/index.js'
import { behavesAsVectorStore } from './conformance.js'

behavesAsVectorStore('memory', async () => ({ store: memory(), close: async () => undefined }))
