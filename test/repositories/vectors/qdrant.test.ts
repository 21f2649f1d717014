import { QdrantClient } from '@qdrant/js-client-rest'
import { qdrant } from '../../../packages/repositories/src/vectors/index.js'
import { installQdrant, startQdrant } from '../../../tools/servers/qdrant.mjs'
import { ServerMissing } from '../../../tools/servers/server-missing.mjs'
import { describeWith } from '../../support/describe-with.js'
import { behavesAsVectorStore } from './conformance.js'

behavesAsVectorStore(
  'qdrant',
  async () => {
    const server = await startQdrant()
    return { store: qdrant(new QdrantClient({ url: server.url })), close: () => server.stop() }
  },
  await describeWith("Qdrant's engine", installQdrant, ServerMissing),
)
