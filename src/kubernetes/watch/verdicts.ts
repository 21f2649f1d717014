import type { KubernetesObject } from '../api/objects.js'
import { ownerOf } from '../cluster/ownership.js'
import { readinessOf } from '../readiness/index.js'

/** The state of an object as a waiting handler would find it. */
export type Verdict = 'waiting' | 'ready' | 'failed'

/** A change of an object that a document may wait for. */
export interface Change {
  /** The `_id` of its document. */
  readonly id: unknown
  /** The resourceVersion of the change; undefined if the server's versions aren't numbers. */
  readonly version: number | undefined
}

/** Everything that is kept of an object. */
interface Known {
  readonly verdict: string
  /** The document's `_id`: a list doesn't show the owner of an object that is no longer in it. */
  readonly id: unknown
  /** The list during which, or after which, it was last seen. */
  readonly round: number
}

/** Judges an object as a handler's `ready` does. */
export function verdictOf(object: KubernetesObject): Verdict {
  const readiness = readinessOf(object)
  if (readiness.done) return 'ready'
  return readiness.failed ? 'failed' : 'waiting'
}

/**
 * The known objects of one kind: the last verdict and the document of each, 240 bytes. It separates a change of
 * verdict from the many events that change nothing for a handler.
 */
export class Verdicts {
  private readonly known = new Map<string, Known>()
  private round = 0

  constructor(
    /** The database of the documents of interest: several databases may share a cluster. */
    private readonly database: string,
    private readonly judge: (object: KubernetesObject) => string = verdictOf,
  ) {}

  get size(): number {
    return this.known.size
  }

  /** Records the current state of an object. If it is new and its verdict isn't `waiting`, that is a change: a document may be waiting for it. */
  saw(object: KubernetesObject): Change | undefined {
    const owner = ownerOf(object)
    if (!owner || owner.database !== this.database) return undefined
    const key = keyOf(object)
    const verdict = this.judged(object)
    const before = this.known.get(key)?.verdict ?? 'waiting'
    this.known.set(key, { verdict, id: owner.id, round: this.round })
    return verdict === before ? undefined : { id: owner.id, version: versionOf(object.metadata.resourceVersion) }
  }

  /** If the judge throws, nothing is known about the object; a handler runs into the same error. */
  private judged(object: KubernetesObject): string {
    try {
      return this.judge(object)
    } catch {
      return 'waiting'
    }
  }

  /** Records that an object is gone, in its last state; its resourceVersion is that of its deletion. */
  lost(object: KubernetesObject): Change | undefined {
    this.known.delete(keyOf(object))
    const owner = ownerOf(object)
    if (!owner || owner.database !== this.database) return undefined
    return { id: owner.id, version: versionOf(object.metadata.resourceVersion) }
  }

  /** Begins a list: call it before the first page is recorded. */
  beginList(): void {
    this.round += 1
  }

  /** Ends a list: known objects that weren't in it are gone. */
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

/** The etcd revision, which counts over all objects of a cluster, so versions of two kinds can be compared. */
export function versionOf(resourceVersion: string | undefined): number | undefined {
  const version = Number(resourceVersion)
  return resourceVersion !== undefined && Number.isSafeInteger(version) && version > 0 ? version : undefined
}
