/**
 * State that all replicas of a Phaselock app share.
 *
 * @packageDocumentation
 */
export * from './store/index.js'
