export { type Clock, sleep, systemClock } from './clock.js'
export { type Duration, durationMs, formatMs, InvalidDuration } from './duration.js'
