import type { KubernetesObject } from '../api/objects.js'
import { ownerOf } from '../cluster/ownership.js'
import { readinessOf } from '../readiness/index.js'

/** What a handler that waits for an object would find. */
export type Verdict = 'waiting' | 'ready' | 'failed'

/** A change of an object that a document may wait for. */
export interface Change {
  /** The `_id` of its document. */
  readonly id: unknown
  /** The resourceVersion of the change; undefined where the server's aren't numbers. */
  readonly version: number | undefined
}

/** All that is kept of an object. */
interface Known {
  readonly verdict: string
  /** The document's `_id`: a list doesn't tell whose an object was that is no longer in it. */
  readonly id: unknown
  /** The list in which, or after which, it was seen last. */
  readonly round: number
}

/** Judges an object as a handler's `ready` does. */
export function verdictOf(object: KubernetesObject): Verdict {
  const readiness = readinessOf(object)
  if (readiness.ready) return 'ready'
  return readiness.failed ? 'failed' : 'waiting'
}

/**
 * What is known about the objects of one kind: for each its last verdict and its document, 240 bytes. It tells a change of
 * verdict from the many events that change nothing for a handler.
 */
export class Verdicts {
  private readonly known = new Map<string, Known>()
  private round = 0

  constructor(
    /** The database whose documents are of interest: several may share a cluster. */
    private readonly database: string,
    private readonly judge: (object: KubernetesObject) => string = verdictOf,
  ) {}

  get size(): number {
    return this.known.size
  }

  /** An object as it is now. One that is seen for the first time and need not be waited for is news: a document may be waiting for it. */
  saw(object: KubernetesObject): Change | undefined {
    const owner = ownerOf(object)
    if (!owner || owner.database !== this.database) return undefined
    const key = keyOf(object)
    const verdict = this.judged(object)
    const before = this.known.get(key)?.verdict ?? 'waiting'
    this.known.set(key, { verdict, id: owner.id, round: this.round })
    return verdict === before ? undefined : { id: owner.id, version: versionOf(object.metadata.resourceVersion) }
  }

  /** A judge that throws knows nothing about the object; a handler meets the same error. */
  private judged(object: KubernetesObject): string {
    try {
      return this.judge(object)
    } catch {
      return 'waiting'
    }
  }

  /** An object that is gone, in its last state; its resourceVersion is that of its end. */
  lost(object: KubernetesObject): Change | undefined {
    this.known.delete(keyOf(object))
    const owner = ownerOf(object)
    if (!owner || owner.database !== this.database) return undefined
    return { id: owner.id, version: versionOf(object.metadata.resourceVersion) }
  }

  /** Call it before the pages of a list are seen. */
  beginList(): void {
    this.round += 1
  }

  /** Objects that were known and aren't in the list are gone. */
  endList(resourceVersion: string | undefined): Change[] {
    const gone: Change[] = []
    for (const [key, { id, round }] of this.known) {
      if (round === this.round) continue
      this.known.delete(key)
      gone.push({ id, version: versionOf(resourceVersion) })
    }
    return gone
  }
}

const keyOf = ({ metadata: { namespace = '', name } }: KubernetesObject): string => `${namespace}/${name}`

/** etcd's revisions, which count over all objects of a cluster: versions of two kinds can be compared. */
export function versionOf(resourceVersion: string | undefined): number | undefined {
  const version = Number(resourceVersion)
  return resourceVersion !== undefined && Number.isSafeInteger(version) && version > 0 ? version : undefined
}
