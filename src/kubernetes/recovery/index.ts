export { type EarlyRecoveryOptions, earlyRecovery, PodUnknown } from './early-recovery.js'
export { CONTAINERS_COLLECTION } from './run-records.js'
