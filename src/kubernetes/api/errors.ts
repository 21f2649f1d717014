import { brand } from '../../options/index.js'

/** The request that failed, and its cluster. */
export interface Request {
  /** The cluster's name, as in its Region. */
  readonly cluster: string
  /** The verb as in RBAC: get, list, watch, create, patch, delete. */
  readonly verb: string
  /** Plural and group: `certificates.cert-manager.io`, `pods`. */
  readonly resource: string
  /** Undefined: all namespaces, or a kind without namespaces. */
  readonly namespace?: string | undefined
  /** The object's name; undefined: a list. */
  readonly object?: string | undefined
}

/** An unsuccessful answer of an API server; the subclasses say which kind it is, and what to do. */
export class KubernetesError extends Error {
  override readonly name: string = 'KubernetesError'
  /**
   * @param serverMessage the server's own message
   * @param status the HTTP status
   */
  constructor(
    message: string,
    /** The request that failed, and its cluster. */
    readonly request: Request,
    readonly serverMessage: string = message,
    readonly status?: number,
  ) {
    super(message)
  }
}

/** Another writer keeps changing the object, more often than a few retries could handle: try again later. */
export class KubernetesConflict extends KubernetesError {
  override readonly name = 'KubernetesConflict'
}

/** The account isn't allowed to do this: a rule is missing in its Role. Names the verb, the resource and the namespace. */
export class KubernetesForbidden extends KubernetesError {
  override readonly name = 'KubernetesForbidden'
}

/** A ResourceQuota of the namespace leaves no room. A person has to decide: raise it, or remove something. */
export class QuotaExceeded extends KubernetesError {
  override readonly name = 'QuotaExceeded'
}

/** The server refuses the object's content (schema, validation): repeating the request changes nothing. */
export class InvalidResource extends KubernetesError {
  override readonly name = 'InvalidResource'
}

/** A policy of the cluster (admission webhook or plugin) refuses the object: repeating the request changes nothing. */
export class AdmissionDenied extends KubernetesError {
  override readonly name = 'AdmissionDenied'
}

/** An object with this name exists but doesn't belong to this document: nothing was written. Rename, or remove the other one. */
export class NotOwned extends KubernetesError {
  override readonly name = 'NotOwned'
}

/** A newer holder of the document has written this object: the caller is late, and nothing was written. Stop. */
export class StaleFence extends KubernetesError {
  override readonly name = 'StaleFence'
}

/** The object is being deleted, so it can't be recreated yet: wait until it is gone. */
export class BeingDeleted extends KubernetesError {
  override readonly name = 'BeingDeleted'
}

/** The namespace is being deleted: nothing can be created in it until it is gone and exists again. */
export class NamespaceTerminating extends KubernetesError {
  override readonly name = 'NamespaceTerminating'
}

/** There is no such namespace (yet). */
export class NamespaceMissing extends KubernetesError {
  override readonly name = 'NamespaceMissing'
}

/** The cluster doesn't know this kind: its CustomResourceDefinition isn't installed, or not served in this version. */
export class UnknownKind extends KubernetesError {
  override readonly name = 'UnknownKind'
}

brand({
  KubernetesError,
  KubernetesConflict,
  KubernetesForbidden,
  QuotaExceeded,
  InvalidResource,
  AdmissionDenied,
  NotOwned,
  StaleFence,
  BeingDeleted,
  NamespaceTerminating,
  NamespaceMissing,
  UnknownKind,
})
