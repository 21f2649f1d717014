export type { Embed, Embedded, Embedder, Embeddings, KeptVectors } from './embedder.js'
