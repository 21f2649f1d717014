export { hasEnded, presentRun, runsOf } from './container-run.js'
export { type EarlyRecoveryOptions, earlyRecovery, PodUnknown } from './early-recovery.js'
export { UnknownRun } from './own-run.js'
export { CONTAINERS_COLLECTION } from './run-records.js'
