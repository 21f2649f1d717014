import { QdrantClient } from '@qdrant/js-client-rest'
import { qdrant } from '../../../packages/repositories/src/vectors/index.js'
import { startQdrant } from '../../../tools/servers/qdrant.mjs'
import { behavesAsVectorStore } from './conformance.js'

behavesAsVectorStore('qdrant', async () => {
  const server = await startQdrant()
  return { store: qdrant(new QdrantClient({ url: server.url })), close: () => server.stop() }
})
