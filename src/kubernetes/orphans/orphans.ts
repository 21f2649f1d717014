import type { Db } from 'mongodb'
import { type LifecycleModel, Unavailable } from '../../phases/index.js'
import { KubernetesConflict, KubernetesError, KubernetesForbidden, UnknownKind } from '../api/errors.js'
import type { KubernetesObject, ObjectRef } from '../api/objects.js'
import type { Cluster } from '../cluster/cluster.js'
import { FIELD_MANAGER, LABELS } from '../cluster/ownership.js'
import { deleteAsSeen, removalOf } from '../cluster/removal.js'
import { type NotLookedAt, type SweptKind, sweptKinds } from './kinds.js'
import { type OwnerDocument, Owners } from './owners.js'
import { type OrphanVerdict, type SweepRules, verdictOn } from './verdict.js'

const OURS = `${LABELS.lifecycle},${LABELS.managedBy}=${FIELD_MANAGER}`
const LISTS_AT_ONCE = 8
/** Covers a lease that has just run out, and the difference between two clocks kept by NTP. */
const CLOCK_SLACK_MS = 5_000

/** The options of `new Orphans(...)`: what to search for, and what may be removed. */
export interface OrphansOptions {
  /** The database whose documents own the objects. */
  readonly db: Db
  /** The lifecycles whose objects are searched; objects of others are counted. */
  readonly models: readonly LifecycleModel[]
  /** No younger object is removed; raised to the lifecycle's lease plus 5 s for the clocks. */
  readonly olderThanMs: number
  /** True to remove objects left behind by documents in final phases too. */
  readonly ended?: boolean
  /** True to remove objects even if the lifecycle's collection is empty, as it would be in a wrong database. */
  readonly emptyCollections?: boolean
}

/** An object whose document is gone, or has ended. */
export interface Orphan extends OrphanVerdict {
  /** The object, by kind, name and namespace. */
  readonly ref: ObjectRef
  /** Its uid: the object is removed only while it has this uid. */
  readonly uid: string
  /** The document named by its labels and annotations. */
  readonly owner: OwnerDocument
}

/** The result of a search in one cluster. */
export interface FoundOrphans {
  /** The orphans of the given lifecycles, by kind and name. */
  readonly orphans: readonly Orphan[]
  /** Kinds that the account may not list, and API groups that don't answer. */
  readonly notLookedAt: readonly NotLookedAt[]
  /** The number of objects of lifecycles that aren't known here. */
  readonly lifecycles: ReadonlyMap<string, number>
  /** The number of objects of documents of other databases. */
  readonly databases: ReadonlyMap<string, number>
}

/** The outcome for an orphan: removed, or the reason why it was left alone. */
export type Swept = 'removed' | { readonly left: string; readonly failed: boolean }

/**
 * Finds objects whose documents are gone, and removes them. They come from a late creation whose maker died before it could remove them, or
 * from documents that a restored database doesn't have.
 *
 * Invariant: no object that a document has adopted is removed. An object is read, then its document, then it is deleted as it was read
 * (uid and resourceVersion). A document that is recreated after that read may write the object first (`ensure`), and the deletion
 * is refused. Or it writes after the deletion, and creates the object again.
 */
export class Orphans {
  private readonly owners: Owners

  constructor(private readonly options: OrphansOptions) {
    this.owners = new Owners(options.db, options.models)
  }

  /**
   * @param namespaces the only namespaces to search; default: the whole cluster or, if that isn't allowed, `elseIn`
   * @throws Unavailable if the cluster can't be reached; the database's own errors
   */
  async find(cluster: Cluster, namespaces?: readonly string[], elseIn?: string): Promise<FoundOrphans> {
    const { kinds, notLookedAt } = await sweptKinds(cluster)
    const found = new Map<string, { object: KubernetesObject; owner: OwnerDocument }>()
    const [lifecycles, databases] = [new Map<string, number>(), new Map<string, number>()]
    const wanted = kinds.filter(({ namespaced }) => namespaced || !namespaces)
    for (let from = 0; from < wanted.length; from += LISTS_AT_ONCE) {
      const some = wanted.slice(from, from + LISTS_AT_ONCE)
      const lists = await Promise.all(some.map((kind) => listed(cluster, kind, namespaces, elseIn)))
      notLookedAt.push(...lists.flatMap(({ missed }) => missed))
      for (const object of lists.flatMap(({ objects }) => objects)) {
        const owner = this.owners.of(object)
        if (owner?.model) found.set(object.metadata.uid ?? '', { object, owner })
        else if (owner?.lifecycle !== undefined) count(lifecycles, owner.lifecycle)
        else if (owner?.database !== undefined) count(databases, owner.database)
      }
    }
    return { orphans: await this.judged([...found.values()]), notLookedAt, lifecycles, databases }
  }

  /**
   * Removes an orphan, if it is still an orphan.
   * @throws Unavailable; the database's own errors
   */
  async remove(cluster: Cluster, orphan: Orphan): Promise<Swept> {
    if (orphan.kept !== undefined) return left(orphan.kept)
    try {
      const live = await cluster.get(orphan.ref)
      if (!live) return left('gone by itself')
      if (live.metadata.uid !== orphan.uid) return left('another one of that name is there now')
      const owner = this.owners.of(live)
      const [now] = owner?.model ? await this.judged([{ object: live, owner }]) : []
      if (!now) return left('its document is there now')
      if (now.kept !== undefined) return left(now.kept)
      await deleteAsSeen(cluster, live)
      const removal = removalOf(orphan.ref, await cluster.get(orphan.ref))
      return removal.done ? 'removed' : left(removal.text)
    } catch (error) {
      if (error instanceof KubernetesConflict) return left('it was changed meanwhile')
      if (error instanceof KubernetesError) return { left: error.message, failed: true }
      throw error
    }
  }

  /** The orphans among the objects. */
  private async judged(objects: readonly { object: KubernetesObject; owner: OwnerDocument }[]): Promise<Orphan[]> {
    const orphans: Orphan[] = []
    for (const model of this.options.models) {
      const own = objects.filter(({ owner }) => owner.model === model)
      if (own.length === 0) continue
      const rules = await this.rulesOf(model)
      const ids = own.map(({ owner }) => owner.id)
      const presence = await this.owners.presence(model, ids)
      for (const { object, owner } of own) {
        const verdict = verdictOn(object, owner, presence, rules)
        const { apiVersion, kind, metadata } = object
        const { name, namespace, uid = '' } = metadata
        if (verdict) orphans.push({ ...verdict, ref: { apiVersion, kind, metadata: { name, namespace } }, uid, owner })
      }
    }
    return orphans.sort(byKindAndName)
  }

  private async rulesOf(model: LifecycleModel): Promise<SweepRules> {
    const { olderThanMs, ended = false, emptyCollections = false } = this.options
    const leaseMs = (await this.owners.leaseMs(model)) + CLOCK_SLACK_MS
    return { olderThanMs: Math.max(olderThanMs, leaseMs), ended, emptyCollections }
  }
}

const left = (why: string): Swept => ({ left: why, failed: false })
const count = (counts: Map<string, number>, of: string) => counts.set(of, (counts.get(of) ?? 0) + 1)

/** Secrets come last: a controller would write a Certificate's Secret again as long as the Certificate exists. */
function byKindAndName(one: Orphan, other: Orphan): number {
  const key = ({ ref: { kind, metadata } }: Orphan) =>
    [kind === 'Secret' ? 1 : 0, kind, metadata.namespace ?? '', metadata.name].join(' ')
  return key(one) < key(other) ? -1 : 1
}

/** The objects of a kind that carry our labels. A missing right, or a kind that has just been removed, is reported. */
async function listed(
  cluster: Cluster,
  kind: SweptKind,
  namespaces: readonly string[] | undefined,
  elseIn: string | undefined,
): Promise<{ objects: KubernetesObject[]; missed: NotLookedAt[] }> {
  const places: readonly (string | undefined)[] = namespaces ?? [undefined]
  const objects: KubernetesObject[] = []
  const missed: NotLookedAt[] = []
  for (const namespace of places) {
    try {
      objects.push(...(await cluster.list(kind, { labels: OURS, namespace })))
    } catch (error) {
      if (error instanceof UnknownKind) continue
      // The server of one kind is unreachable, or its definition is being removed; or the whole cluster is unreachable.
      if (error instanceof Unavailable) await cluster.reach()
      else if (!(error instanceof KubernetesError)) throw error
      const isElsewhere = error instanceof KubernetesForbidden && kind.namespaced && !namespaces && elseIn
      if (isElsewhere) return listed(cluster, kind, [elseIn], undefined)
      missed.push({ what: kind.resource, why: (error as Error).message })
    }
  }
  return { objects, missed }
}
