import { brand } from '../../options/index.js'

/** The request, and its cluster, that went wrong. */
export interface Request {
  /** The cluster's name, as in its Region. */
  readonly cluster: string
  /** As in RBAC: get, list, watch, create, patch, delete. */
  readonly verb: string
  /** Plural and group: `certificates.cert-manager.io`, `pods`. */
  readonly resource: string
  /** Undefined: all, or a kind without namespaces. */
  readonly namespace?: string | undefined
  /** Its name; undefined: a list. */
  readonly object?: string | undefined
}

/** An answer of an API server that is no success; the subclasses say which kind, and what to do. */
export class KubernetesError extends Error {
  override readonly name: string = 'KubernetesError'
  /**
   * @param serverMessage the server's own message
   * @param status the HTTP status
   */
  constructor(
    message: string,
    /** What was asked of which cluster. */
    readonly request: Request,
    readonly serverMessage: string = message,
    readonly status?: number,
  ) {
    super(message)
  }
}

/** Something else keeps changing the object, more often than a few repetitions could cope with: try again later. */
export class KubernetesConflict extends KubernetesError {
  override readonly name = 'KubernetesConflict'
}

/** The account may not do this: a rule is missing in its Role. Says which verb on which resource in which namespace. */
export class KubernetesForbidden extends KubernetesError {
  override readonly name = 'KubernetesForbidden'
}

/** A ResourceQuota of the namespace leaves no room. A person has to decide: raise it, or remove something. */
export class QuotaExceeded extends KubernetesError {
  override readonly name = 'QuotaExceeded'
}

/** The server refuses the object's content (schema, validation): repeating it changes nothing. */
export class InvalidResource extends KubernetesError {
  override readonly name = 'InvalidResource'
}

/** A policy of the cluster (admission webhook or plugin) refuses the object: repeating it changes nothing. */
export class AdmissionDenied extends KubernetesError {
  override readonly name = 'AdmissionDenied'
}

/** There is an object with this name that isn't this document's: nothing was written. Rename, or remove the other one. */
export class NotOwned extends KubernetesError {
  override readonly name = 'NotOwned'
}

/** A newer holder of the document has written this object: the caller is late, and nothing was written. Stop. */
export class StaleFence extends KubernetesError {
  override readonly name = 'StaleFence'
}

/** The object is being deleted, so it can't be created anew yet: wait until it is gone. */
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
