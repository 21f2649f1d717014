export { type Chunk, type ChunkSize, checkChunkSize, chunksOf, DEFAULT_CHUNK_SIZE } from './chunk.js'
export { checkEncodings, type Decoded, decode } from './decode.js'
