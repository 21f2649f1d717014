export type { NotLookedAt } from './kinds.js'
export { type FoundOrphans, type Orphan, Orphans, type OrphansOptions, type Swept } from './orphans.js'
