export * from './errors.js'
export { SharedStore, type SharedStoreOptions } from './shared-store.js'
export type * from './types.js'
