export { isDuplicateKey, protocolCollection } from '../../database/index.js'
export {
  Doorbell,
  type DoorbellKind,
  type DoorbellOptions,
  type Hearing,
  type Listener,
  type Ring,
} from '../../doorbell/index.js'
export { Holder, NoLongerHeld, type RunningStep } from '../../phases/index.js'
export { durationMs, InvalidDuration } from '../../time/index.js'
export { type BindOptions, type Bound, bindLifecycle, checkBindOptions, type WrapHandler } from './bind-lifecycle.js'
export { doDuty, type PackageDuty } from './duty.js'
export { distinctName, idText, objectNameFor } from './names.js'
export type { PackageAnswer, PackageCall, PackageCheck, PackageCommand, PackageCommands } from './package-command.js'
