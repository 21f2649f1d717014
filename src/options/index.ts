export { brand } from './brand.js'
export { withFormerFields } from './former.js'
export { didYouMean, editDistance, nearest } from './nearest.js'
export { numbersOf, OWN_READING, type OwnersNumbers, ownReads } from './own-reads.js'
export { DOORBELL_MODES, type DoorbellMode, processOptions } from './process-options.js'
export {
  checkOptions,
  InvalidOptions,
  meant,
  type OptionNames,
  readOptions,
  renamedNow,
  unknownOptions,
} from './read-options.js'
export { replicaIdentity } from './replica-identity.js'
export { numbered, shellQuoted, shown, typed, withErrors } from './shown.js'
export { toStandardError } from './standard-error.js'
export * as t from './types.js'
export { COLLECTION_NAME, msOf } from './types.js'
