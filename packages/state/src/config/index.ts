/**
 * The configuration of an app, the same on all its replicas: versions in MongoDB, checked by a schema (docs/state.md).
 *
 * @packageDocumentation
 */
export { ConfigStore, type ConfigStoreOptions } from './config-store.js'
export { type ConfigDefinition, defineConfig, InvalidConfig } from './definition.js'
export type { StandardSchema } from './schema.js'
export { CONFIG_COLLECTION, type ConfigChange, type ConfigVersion } from './versions.js'
