/**
 * Handlers that work in Kubernetes clusters: only the holder of a document ensures, awaits and removes its objects.
 *
 * @example
 * ```ts
 * import { lifecycleOf } from 'phaselock'
 * import { connectDatabase } from 'phaselock/database'
 * import { Cluster, onCluster } from 'phaselock/kubernetes'
 *
 * const page = lifecycleOf<{ _id: string; text: string }>().define({
 *   name: 'page',
 *   collection: 'Page',
 *   phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
 * })
 * const { db } = await connectDatabase()
 * const cluster = Cluster.of({ name: 'production', kubeconfig: 'default' })
 *
 * export const pages = page.handle({
 *   Creating: onCluster(
 *     (doc, step) => cluster.hold(doc, step, { name: 'page', collection: 'Page', db }),
 *     async (doc, step, held) => {
 *       const metadata = { name: doc._id, namespace: 'pages' }
 *       await held.ensure({ apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { text: doc.text } })
 *       return step.moveTo('Created')
 *     },
 *   ),
 * })
 * ```
 * @packageDocumentation
 */
export type { ApiServer, ClusterOptions } from './api/api-server.js'
export * from './api/errors.js'
export { type KindRef, type KubernetesObject, nameOf, type ObjectMeta, type ObjectRef } from './api/objects.js'
export { podLog } from './api/pod-log.js'
export { Cluster } from './cluster/cluster.js'
export { HeldCluster } from './cluster/held-cluster.js'
export { onCluster } from './cluster/on-cluster.js'
export { ANNOTATIONS, fenceOf, LABELS, Owner, type OwnerLifecycle } from './cluster/ownership.js'
export { type Removal, type RemoveOptions, removalOf } from './cluster/removal.js'
export { type Orphan, Orphans } from './orphans/orphans.js'
export { type Readiness, readinessOf } from './readiness/index.js'
export { type EarlyRecoveryOptions, earlyRecovery, PodUnknown } from './recovery/early-recovery.js'
export { InvalidRegion, type Region, type RegionSource, RegionUnavailable, singleRegion } from './regions/region.js'
export { REGION_COLLECTION, type RegionDocument } from './regions/region-document.js'
export { regionWorks } from './regions/region-works.js'
export { Regions, type RegionsOptions } from './regions/regions.js'
export { InvalidWatchOptions, type WatchOptions, watchObjects } from './watch/watch-objects.js'
