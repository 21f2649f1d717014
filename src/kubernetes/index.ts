export type { ApiServer, CallOptions, ClusterOptions, ListOptions } from './api-server.js'
export { Cluster } from './cluster.js'
export type { KubeconfigSource } from './credentials.js'
export {
  AdmissionDenied,
  BeingDeleted,
  InvalidResource,
  KubernetesConflict,
  KubernetesError,
  KubernetesForbidden,
  NamespaceMissing,
  NamespaceTerminating,
  NotOwned,
  QuotaExceeded,
  type Request,
  StaleFence,
  UnknownKind,
} from './errors.js'
export { HeldCluster } from './held-cluster.js'
export {
  fullNameOf,
  type KindRef,
  type KubernetesObject,
  nameOf,
  type ObjectMeta,
  type ObjectRef,
} from './objects.js'
export { onCluster } from './on-cluster.js'
export {
  type FoundOrphans,
  type NotLookedAt,
  type Orphan,
  Orphans,
  type OrphansOptions,
  type Swept,
} from './orphans/index.js'
export {
  ANNOTATIONS,
  documentLabel,
  FIELD_MANAGER,
  fenceOf,
  LABELS,
  labelValue,
  Owner,
  type OwnerLifecycle,
  ownerOf,
} from './ownership.js'
export { type PodLogOptions, podLog } from './pod-log.js'
export { type Readiness, type ReadyOptions, readinessOf } from './readiness/index.js'
export { CONTAINERS_COLLECTION, type EarlyRecoveryOptions, earlyRecovery, PodUnknown } from './recovery/index.js'
export {
  type GatewaySettings,
  InvalidRegion,
  REGION_COLLECTION,
  type Region,
  type RegionDocument,
  type RegionSource,
  type RegionStatus,
  Regions,
  type RegionsOptions,
  RegionUnavailable,
  regionWorks,
  singleRegion,
} from './regions/index.js'
export { type Propagation, type Removal, type RemoveOptions, removalOf } from './removal.js'
export {
  InvalidWatchOptions,
  type Verdict,
  verdictOf,
  type WatchedKind,
  type WatchOptions,
  watchObjects,
} from './watch/index.js'
