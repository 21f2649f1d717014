import { pgvector } from '../../../packages/repositories/src/vectors/index.js'
import { behavesAsVectorStore } from './conformance.js'
import { openPglite } from './pglite.js'

behavesAsVectorStore('pgvector', async () => {
  const { pool, close } = await openPglite()
  return { store: pgvector(pool), close }
})
