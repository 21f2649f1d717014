/**
 * The shared state in Nest apps, and logins for other services over HTTP (docs/state.md).
 *
 * @packageDocumentation
 */
export { LoginsHttpModule, type LoginsHttpRequest, type LoginsHttpSources } from './logins-http.js'
export { StateModule, type StateModuleAsyncOptions, type StateModuleOptions } from './state-module.js'
