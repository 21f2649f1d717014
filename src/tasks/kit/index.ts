export { isDuplicateKey, protocolCollection } from '../../database/index.js'
export { type HeldDocument, Holder, NoLongerHeld, type RunningStep } from '../../phases/index.js'
export { durationMs, InvalidDuration } from '../../time/index.js'
export {
  type BindLifecycleOptions,
  type BindOptions,
  type Bound,
  bindLifecycle,
  checkBindOptions,
  type WrapHandler,
} from './bind-lifecycle.js'
export { distinctName, idText, objectNameFor } from './names.js'
