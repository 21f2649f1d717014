/**
 * Git repositories kept in sync with a vector store.
 *
 * @example
 * ```ts
 * import { chunksOf, fixedToken, GitCache, gitSource } from 'phaselock-repositories'
 *
 * const source = gitSource({
 *   url: 'https://gitlab.example/group/project.git',
 *   credentials: fixedToken(process.env['GITLAB_TOKEN']!),
 *   cache: new GitCache(),
 * })
 * const { signal } = new AbortController()
 * const head = await source.head('main', { signal })
 * for await (const { path, blob } of source.tree(head, { signal })) console.log(path, blob)
 * console.log(chunksOf('one line\nanother\n'))
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
