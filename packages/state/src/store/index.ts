export * from './errors.js'
export type * from './shared-store.js'
export type * from './types.js'
