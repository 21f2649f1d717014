import { protocolCollection } from '../../database/index.js'
import { type HeldDocument, Holder, NoLongerHeld, type RunningStep } from '../../phases/index.js'
import type { ApiServer, CallOptions, ListOptions } from '../api/api-server.js'
import { BeingDeleted, KubernetesConflict, KubernetesError, NotOwned, StaleFence } from '../api/errors.js'
import {
  fullNameOf,
  type KindRef,
  type KubernetesObject,
  nameOf,
  type ObjectMeta,
  type ObjectRef,
} from '../api/objects.js'
import { asReadiness, type Readiness, type ReadyOptions, readinessOf } from '../readiness/index.js'
import { ANNOTATIONS, FIELD_MANAGER, fenceOf, Owner, type OwnerLifecycle } from './ownership.js'
import { deleteAsSeen, type Removal, type RemoveOptions, removalOf, whatHolds } from './removal.js'

/**
 * The version of an object that doesn't exist: an apply with it creates the object or, if one exists after all, is refused. No
 * object's version is this low.
 */
const NO_VERSION = '1'
/** The number of attempts for a write that conflicts with another: controllers write to the same objects all the time. */
const TRIES = 5

/**
 * The access of one lifecycle step to a cluster, on behalf of its document.
 *
 * Invariant: no write of a step takes effect after a later holder of the document has written the same object. To ensure it, each
 * write stamps the step's fence, checks the object's fence first, and requires the object to be the one that was read
 * (uid and resourceVersion), or to be absent. If a late step creates an object after another holder has taken the document, it
 * removes the object again. Each write also needs a lease with time left, by the local clock, right before it is sent, and waits for its
 * answer no longer than the lease lasts.
 */
export class HeldCluster {
  /** The document as the owner of the objects that this step creates. */
  readonly owner: Owner
  private readonly holder: Holder

  constructor(
    /** The cluster without a document: for reads that need no owner. */
    readonly cluster: ApiServer,
    private readonly document: HeldDocument,
    private readonly step: RunningStep,
    private readonly lifecycle: OwnerLifecycle,
  ) {
    this.owner = new Owner(lifecycle, document._id)
    const { db, collection } = lifecycle
    this.holder = new Holder(protocolCollection(db, collection), document, step)
  }

  /** Returns the object as it is now; undefined if there is none. Ends with the step's signal. */
  get(ref: ObjectRef): Promise<KubernetesObject | undefined> {
    return this.cluster.get(ref, { signal: this.step.signal })
  }

  /** Returns all objects of a kind that match. Ends with the step's signal. */
  list(kind: KindRef, options: Omit<ListOptions, 'signal'> = {}): Promise<KubernetesObject[]> {
    return this.cluster.list(kind, { ...options, signal: this.step.signal })
  }

  /**
   * Creates the object as given, or changes the existing one (server-side apply): fields of an earlier call that are missing in
   * this one are removed, fields of other managers stay. The owner's labels and the fence are added. A repeated call changes nothing
   * except the fence. Because that is a write (and an event for watches) each time, a handler calls it in a step of its own and waits in
   * the next one.
   * @returns the object as the server has it now
   * @throws NotOwned, StaleFence: nothing was written
   * @throws BeingDeleted, KubernetesConflict, QuotaExceeded, InvalidResource, AdmissionDenied, NamespaceTerminating,
   *   NamespaceMissing, and the errors of any request (Cluster)
   * @throws NoLongerHeld if another replica holds the document: the object that was just created is removed again
   */
  async ensure(object: KubernetesObject): Promise<KubernetesObject> {
    return this.repeated(object, 'patch', async () => {
      const live = await this.get(object)
      if (live) await this.assertWritable(live, 'patch')
      if (live?.metadata.deletionTimestamp !== undefined) {
        const says = `${nameOf(live)} ${whatHolds(live)}: it can be created again once it is gone`
        throw await this.refused(BeingDeleted, live, 'patch', says)
      }
      return live ? this.apply(object, live) : this.create(object)
    })
  }

  /** Judges the object's readiness: `text` says what is missing. Only reads. */
  async ready(ref: ObjectRef, options: ReadyOptions = {}): Promise<Readiness> {
    const object = await this.get(ref)
    if (!object) return asReadiness({ done: false, text: `there is no ${fullNameOf(ref)}` })
    return readinessOf(object, options)
  }

  /**
   * Removes the object and returns the progress; `text` names the finalizers that hold it. An object that doesn't exist is
   * gone. Call it again after a wait until it is.
   * @throws NotOwned, StaleFence: nothing was removed
   * @throws KubernetesConflict, and the errors of any request (Cluster)
   */
  async remove(ref: ObjectRef, options: RemoveOptions = {}): Promise<Removal> {
    return this.repeated(ref, 'delete', async () => {
      const live = await this.get(ref)
      if (!live) return removalOf(ref, undefined)
      await this.assertWritable(live, 'delete')
      if (live.metadata.deletionTimestamp === undefined) {
        await deleteAsSeen(this.cluster, live, options, this.limitsOfWrite())
      }
      return removalOf(ref, await this.get(ref))
    })
  }

  /**
   * Creates the object and then checks the lease in the database, because a creation can't be conditional on the document. A replica that
   * took over the document before that check may have looked for the object already, without finding it.
   * @throws NoLongerHeld
   */
  private async create(object: KubernetesObject): Promise<KubernetesObject> {
    let made: KubernetesObject | undefined
    try {
      made = await this.apply(object, undefined)
    } catch (error) {
      // No answer: it may have been created all the same.
      if (!(error instanceof KubernetesError || error instanceof NoLongerHeld)) await this.clearLateOne(object)
      throw error
    }
    try {
      await this.holder.assertHeld()
      return made
    } catch (error) {
      // If the database doesn't answer, the lease's own clock decides: while it lasts the document belongs to this step.
      if (error instanceof NoLongerHeld || this.step.leaseLeftMs() === 0) await this.takeBack(made)
      throw error
    }
  }

  private async apply(object: KubernetesObject, live: KubernetesObject | undefined): Promise<KubernetesObject> {
    const body = { ...object, status: undefined, metadata: this.stamped(object.metadata, live) }
    const http = {
      method: 'PATCH',
      query: { fieldManager: FIELD_MANAGER, force: 'true' },
      contentType: 'application/apply-patch+yaml',
      body,
    } as const
    const { namespace, name } = object.metadata
    const call = { verb: 'patch', kind: object, namespace, object: name, http, ...this.limitsOfWrite() }
    return JSON.parse((await this.cluster.answerTo(call)).text)
  }

  private stamped(metadata: ObjectMeta, live: KubernetesObject | undefined): ObjectMeta {
    const { name, namespace, labels, annotations, finalizers, ownerReferences } = metadata
    const fence = { [ANNOTATIONS.fence]: String(this.step.fence) }
    return {
      name,
      namespace,
      finalizers,
      ownerReferences,
      labels: { ...labels, ...this.owner.labels },
      annotations: { ...annotations, ...this.owner.annotations, ...fence },
      uid: live?.metadata.uid,
      resourceVersion: live?.metadata.resourceVersion ?? NO_VERSION,
    }
  }

  /** @throws NotOwned, StaleFence */
  private async assertWritable(live: KubernetesObject, verb: string): Promise<void> {
    if (!this.owner.owns(live)) {
      const says = `${fullNameOf(live)} of cluster ${this.cluster.name} exists and doesn't belong to ${this.lifecycle.name} ${String(this.document._id)}: nothing was written`
      throw await this.refused(NotOwned, live, verb, says)
    }
    if (fenceOf(live) > this.step.fence) {
      const says = `${fullNameOf(live)} was written under fence ${fenceOf(live)}, and this step has ${this.step.fence}: another replica holds the document; nothing was written`
      throw await this.refused(StaleFence, live, verb, says)
    }
  }

  /** After an unanswered creation: removes the object if it exists and its step no longer holds the document. Never throws. */
  private async clearLateOne(ref: ObjectRef): Promise<void> {
    try {
      await this.holder.assertHeld()
    } catch (error) {
      if (!(error instanceof NoLongerHeld)) return
      const made = await this.cluster.get(ref).catch(() => undefined)
      if (made && this.owner.owns(made)) await this.takeBack(made).catch(() => undefined)
    }
  }

  /** Removes the object that this very step has created, unless a later step has written it since. */
  private async takeBack(made: KubernetesObject): Promise<void> {
    let live: KubernetesObject | undefined = made
    // The controller's writes leave the uid and the fence unchanged.
    const isMine = (object: KubernetesObject) =>
      object.metadata.uid === made.metadata.uid && fenceOf(object) === this.step.fence
    for (let tried = 1; live && isMine(live); tried += 1) {
      try {
        return await deleteAsSeen(this.cluster, live)
      } catch (error) {
        if (!(error instanceof KubernetesConflict) || tried >= TRIES) throw error
      }
      live = await this.cluster.get(made)
    }
  }

  /** @throws NoLongerHeld if the lease has no time left, or the step was asked to stop */
  private limitsOfWrite(): CallOptions {
    const leftMs = this.step.leaseLeftMs()
    this.step.signal.throwIfAborted()
    if (leftMs === 0) throw this.holder.lost()
    return { signal: this.step.signal, timeoutMs: leftMs }
  }

  private async repeated<T>(ref: ObjectRef, verb: string, attempt: () => Promise<T>): Promise<T> {
    for (let tried = 1; ; tried += 1) {
      try {
        return await attempt()
      } catch (error) {
        if (!(error instanceof KubernetesConflict)) throw error
        if (tried < TRIES) continue
        const says = `${verb} ${fullNameOf(ref)}: something else changed it ${TRIES} times in a row, the last answer: ${error.serverMessage}`
        throw new KubernetesConflict(says, error.request, error.serverMessage, error.status)
      }
    }
  }

  private async refused(
    Refusal: typeof KubernetesError,
    live: KubernetesObject,
    verb: string,
    says: string,
  ): Promise<KubernetesError> {
    const { name, namespace } = live.metadata
    return new Refusal(says, await this.cluster.requestOf({ verb, kind: live, namespace, object: name }))
  }
}
