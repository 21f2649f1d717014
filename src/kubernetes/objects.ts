/** The metadata of an object; only what Phaselock reads is spelled out. */
export interface ObjectMeta {
  readonly name: string
  /** Absent for kinds without a namespace. */
  readonly namespace?: string | undefined
  readonly labels?: Readonly<Record<string, string>> | undefined
  readonly annotations?: Readonly<Record<string, string>> | undefined
  readonly uid?: string | undefined
  readonly resourceVersion?: string | undefined
  readonly generation?: number | undefined
  readonly creationTimestamp?: string | undefined
  readonly deletionTimestamp?: string | undefined
  readonly finalizers?: readonly string[] | undefined
  readonly [more: string]: unknown
}

/** An object of any kind as plain JSON, as the API server accepts and returns it. */
export interface KubernetesObject {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: ObjectMeta
  readonly [more: string]: unknown
}

/** Which kind: `{ apiVersion: 'apps/v1', kind: 'Deployment' }`. */
export interface KindRef {
  readonly apiVersion: string
  readonly kind: string
}

/** Which object: its kind, name and namespace. An object is a reference to itself. */
export interface ObjectRef extends KindRef {
  readonly metadata: { readonly name: string; readonly namespace?: string | undefined }
}

/** For messages: `Certificate web`. */
export const nameOf = (ref: ObjectRef): string => `${ref.kind} ${ref.metadata.name}`

/** For messages that must name one object of a cluster: `Certificate web in namespace gw-7`. */
export function fullNameOf(ref: ObjectRef): string {
  const { namespace } = ref.metadata
  return namespace === undefined ? nameOf(ref) : `${nameOf(ref)} in namespace ${namespace}`
}
