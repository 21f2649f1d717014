export { type Verdict, verdictOf } from './verdicts.js'
export { InvalidWatchOptions, type WatchedKind, type WatchOptions, watchObjects } from './watch-objects.js'
