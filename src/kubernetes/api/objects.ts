/** The metadata of an object; only the fields that Phaselock reads are spelled out. */
export interface ObjectMeta {
  /** Unique among the objects of a kind in a namespace. */
  readonly name: string
  /** Absent for kinds without a namespace. */
  readonly namespace?: string | undefined
  /** For selectors: at most 63 characters each. */
  readonly labels?: Readonly<Record<string, string>> | undefined
  /** For programs and people; not for selectors. */
  readonly annotations?: Readonly<Record<string, string>> | undefined
  /** Set by the server: another object of the same name has another one. */
  readonly uid?: string | undefined
  /** Set by the server with each write; compared for equality only. */
  readonly resourceVersion?: string | undefined
  /** Counts changes of `spec`; set by the server. */
  readonly generation?: number | undefined
  /** RFC 3339, by the server's clock. */
  readonly creationTimestamp?: string | undefined
  /** RFC 3339: set once it is being removed; the object stays until no finalizer is left. */
  readonly deletionTimestamp?: string | undefined
  /** The controllers that have yet to clean up before it goes. */
  readonly finalizers?: readonly string[] | undefined
  readonly [more: string]: unknown
}

/** An object of any kind as plain JSON, as the API server accepts and returns it. */
export interface KubernetesObject {
  /** Group and version: `apps/v1`; for the core group the version alone, `v1`. */
  readonly apiVersion: string
  /** The kind in the singular: `Deployment`. */
  readonly kind: string
  /** Its name, its labels and the server's own data about it. */
  readonly metadata: ObjectMeta
  readonly [more: string]: unknown
}

/** A reference to a kind: `{ apiVersion: 'apps/v1', kind: 'Deployment' }`. */
export interface KindRef {
  /** Group and version: `apps/v1`; for the core group the version alone, `v1`. */
  readonly apiVersion: string
  /** The kind in the singular: `Deployment`. */
  readonly kind: string
}

/** A reference to an object: its kind, name and namespace. An object is a reference to itself. */
export interface ObjectRef extends KindRef {
  /** Its name, and the namespace for kinds that have one. */
  readonly metadata: { readonly name: string; readonly namespace?: string | undefined }
}

/** The object in words, for messages: `Certificate web`. */
export const nameOf = (ref: ObjectRef): string => `${ref.kind} ${ref.metadata.name}`

/** The object in words, for messages that must identify it in a cluster: `Certificate web in namespace gw-7`. */
export function fullNameOf(ref: ObjectRef): string {
  const { namespace } = ref.metadata
  return namespace === undefined ? nameOf(ref) : `${nameOf(ref)} in namespace ${namespace}`
}
