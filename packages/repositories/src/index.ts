/**
 * Git repositories kept in sync with a vector store.
 *
 * @example
 * ```ts
 * import { Replica } from 'phaselock'
 * import { connectDatabase } from 'phaselock/database'
 * import { embeddings, fixedToken, memory, mongoVectors, openAiEmbeddings, repositories } from 'phaselock-repositories'
 *
 * const { db } = await connectDatabase()
 * const model = openAiEmbeddings({ url: 'http://localhost:8080/v1', key: 'k', model: 'bge-small', dimensions: 384 })
 * const repos = repositories({
 *   db,
 *   store: memory(), // or qdrant(client), pgvector(pool)
 *   embeddings: embeddings(model, { kept: mongoVectors(db) }),
 *   credentials: () => fixedToken(process.env['GITLAB_TOKEN']!),
 * })
 * await new Replica({ db, lifecycles: repos.lifecycles }).start()
 * await repos.create('billing', {
 *   url: 'https://gitlab.example/shop/billing.git',
 *   profile: 'gitlab',
 *   collection: 'code',
 *   schedule: { every: '6h' },
 * })
 * console.log(await repos.search('where are invoices retried?', { repository: 'billing' }))
 * ```
 * @packageDocumentation
 */
export * from './chunk/index.js'
export * from './compare/index.js'
export * from './embeddings/index.js'
export * from './select/index.js'
export * from './source/index.js'
export * from './sync/index.js'
export * from './vectors/index.js'
