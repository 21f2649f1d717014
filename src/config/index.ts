export { HTTP_PACKAGES, MissingPackage, requirePackages } from './missing-package.js'
export { requireNode, UnsupportedNode } from './node-version.js'
export { packageVersion } from './package-version.js'
export { type Flags, InvalidSettings, readSettings, settingsIn, withoutEffect } from './read-settings.js'
export {
  inMs,
  optionsOfReplica,
  SETTINGS,
  type SettingInfo,
  type SettingKey,
  type Settings,
  settingsSchema,
} from './settings.js'
