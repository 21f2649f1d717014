/**
 * State that all replicas of a Phaselock app share.
 *
 * @packageDocumentation
 */
export {}
