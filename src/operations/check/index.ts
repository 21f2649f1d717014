export { type CheckOptions, checkDatabase } from './check.js'
export { type ClockSample, clockFindings } from './check-clocks.js'
export type { CheckResult, Finding } from './finding.js'
