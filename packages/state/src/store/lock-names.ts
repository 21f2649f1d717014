/** The beginning of the names of `getOrLoad`'s locks. */
export const LOCK_PREFIX = 'phaselock-state:'
