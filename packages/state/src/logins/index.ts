/**
 * Logins to outside systems that all replicas share (docs/state.md).
 *
 * @packageDocumentation
 */
export { KeyUnusable, LoginFailed } from './errors.js'
export { Login } from './login.js'
export { type LoginHandle, Logins, type LoginsOptions, loginsOf, type NamedLogins } from './logins.js'
export type { LoginProfile } from './profile.js'
export { LOGINS_COLLECTION, type LoginChange } from './profiles.js'
