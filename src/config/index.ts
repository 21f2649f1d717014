export { HTTP_PACKAGES, MissingPackage, requirePackages } from './missing-package.js'
export { requireNode, UnsupportedNode } from './node-version.js'
export { type Flags, InvalidSettings, readSettings } from './read-settings.js'
export { SETTINGS, type SettingInfo, type SettingKey, type Settings, settingsSchema } from './settings.js'
