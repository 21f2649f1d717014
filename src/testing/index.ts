export { backDate } from './back-date.js'
export { type ExpectedEntry, LifecycleKit, type LifecycleKitOptions, UnexpectedDocument } from './lifecycle-kit.js'
export { type DoubledEffect, type Fault, type Outside, type RaceOptions, type RaceReport, race } from './race-kit.js'
