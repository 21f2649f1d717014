export { type Verdict, verdictOf } from './verdicts.js'
export { watchObjects } from './watch-objects.js'
export { InvalidWatchOptions, type WatchedKind, type WatchOptions } from './watch-options.js'
