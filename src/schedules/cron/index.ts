export { Cron, cronOf } from './cron.js'
export { InvalidCron } from './invalid-cron.js'
export { UnknownTimeZone, Zone, zoneOf } from './zone.js'
