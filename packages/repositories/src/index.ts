/**
 * Git repositories kept in sync with a vector store.
 *
 * @packageDocumentation
 */
export * from './chunk/index.js'
