export { didYouMean, editDistance, nearest } from './nearest.js'
export { DOORBELL_MODES, type DoorbellMode, processOptions } from './process-options.js'
export { meant, type OptionNames, readOptions, unknownOptions } from './read-options.js'
export { replicaIdentity } from './replica-identity.js'
export { shown } from './shown.js'
export {
  aFunction,
  aName,
  anything,
  duration,
  durationText,
  expecting,
  flag,
  fromText,
  having,
  matching,
  msOf,
  oneOf,
  text,
  whole,
} from './types.js'
