// The entry `phaselock/kinds`: what a task kind is built with besides `phaselock` (and `phaselock/kubernetes` for one in a cluster).
export { isDuplicateKey, protocolCollection } from '../database/index.js'
export { type HeldDocument, Holder, NoLongerHeld, type RunningStep } from '../phases/index.js'
export { durationMs, InvalidDuration } from '../time/index.js'
export { type BindOptions, type Bound, bindLifecycle, type WrapHandler } from './bind-lifecycle.js'
export { distinctName, idText, objectNameFor } from './names.js'
