import type { Collection } from 'mongodb'
import type { ChildrenOf, DocumentName, StoredParent } from '../../../lock/index.js'
import type { LifecycleModel } from '../../model/model.js'

/** The way that a child came to its end. */
export type ChildEnd = 'succeeded' | 'failed' | 'parked'

/** Parents and children across lifecycles, be they run by this replica or by others. */
export interface RelatedLifecycles {
  /** A lifecycle that this replica runs, or that another one has registered; undefined: it is unknown. */
  modelOf(name: string): Promise<LifecycleModel | undefined>
  /** The names of all lifecycles whose documents may be children, as far as they are known. */
  childLifecycles(): Promise<readonly string[]>
  collectionOf(model: LifecycleModel): Collection
  /** @param fromFence only those from this fence on */
  childrenOf(model: LifecycleModel, parent: ChildrenOf['parent'], fromFence?: number): ChildrenOf
  /** Rings for new documents of these lifecycles, which are due. */
  inserted(models: readonly LifecycleModel[]): void
  /** Notifies a parent, if this end decides what it waits for. Returns immediately and never throws. */
  ended(model: LifecycleModel, parent: StoredParent, how: ChildEnd): void
  /** Notifies a document that waits until another one is in this phase. */
  reached(model: LifecycleModel, id: unknown, phase: string, waiter: DocumentName): void
}
