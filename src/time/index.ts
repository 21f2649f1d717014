export { type Clock, processMs, sleep, systemClock } from './clock.js'
export { type Duration, durationMs, formatMs, InvalidDuration } from './duration.js'
export { type LoopStop, LoopWatch } from './loop-watch.js'
