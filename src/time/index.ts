export { type Clock, processMs, sleep, systemClock } from './clock.js'
export { cpuSlowdown, cpuWaitMs } from './cpu-wait.js'
export { type Duration, durationMs, formatMs, fromNow, InvalidDuration } from './duration.js'
export { type LoopStop, LoopWatch } from './loop-watch.js'
