export { type InstanceSettings, instanceDefinition } from './definitions.js'
export { INSTANCE_COLLECTION, type Instance } from './documents.js'
export { type InstanceLifecycles, type InstanceOptions, instanceLifecycles } from './lifecycles.js'
export { INSTANCE_LABEL, instanceNameFor } from './manifests.js'
