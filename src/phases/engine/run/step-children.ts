import { BSON, type Document } from 'mongodb'
import { Mutex } from '../../../concurrency/index.js'
import {
  type ChildList,
  type ChildrenOf,
  COMMITTED,
  childDocuments,
  childListsIn,
  childrenFromIn,
  countChildren,
  countChildrenBut,
  hasChild,
  ID_INDEX,
  idKey,
  idText,
  insertWhileHeld,
  isOfFormer,
  leaseUnmoved,
  parentIn,
  readOwnFields,
  removeChildren,
  type StoredParent,
  setChildrenState,
  typeName,
  underClaimOf,
} from '../../../lock/index.js'
import { ChildExists, InvalidOutcome, LeaseLost, UnknownChild } from '../../errors/errors.js'
import { shown } from '../../errors/kept-text.js'
import { endsOf, type LifecycleModel } from '../../model/model.js'
import { checkDocument } from '../../owner/owner-inserts.js'
import {
  type Child,
  type ChildCounts,
  type ChildrenDone,
  type ChildrenDoneOptions,
  type ChildrenRemoved,
  type ChildState,
  countsOf,
  decide,
  readChildren,
  readDoneOptions,
  readRemoveOptions,
  sumOf,
} from '../../step/children.js'
import type { Progress } from '../../step/step.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import type { Held } from '../lease/held.js'
import { type Awaits, isSameDocument, nameOf } from './step-waits.js'

/** The most documents that one command inserts, and the most bytes. */
const MOST_AT_ONCE = 500
const MOST_BYTES = 4 * 1024 * 1024
/** The most lists of a document. Each is kept in its parent forever, so that it is inserted once. */
const MOST_LISTS = 100
/** The most children that a handler reads: more are none of its business. */
const MOST_DOCUMENTS = 1_000

/** The kind of wait that a parent is counted by, for the worst state of a child. */
const ON_WORST: Readonly<Record<ChildState, string>> = {
  parked: 'parked-child',
  failed: 'failed-child',
  removed: 'failed-child',
  open: 'children',
  succeeded: 'children',
}

/** The fields about children that a write in the middle of a step stores. */
export interface NewLists {
  readonly children?: readonly ChildList[]
  readonly childrenFrom?: number
  readonly reason: string
}

interface ParentRun {
  readonly held: Held
  readonly fence: number
  readonly env: LifecycleEnvironment
  readonly progress: Progress
  awaits: Awaits | undefined
  /** Stores lists under the step's token. @throws LeaseLost */
  checkpoint(set: object, also: NewLists): Promise<void>
}

export class StepChildren {
  /** Runs calls one after the other: each stores all lists, with those that it has found. */
  private readonly turns = new Mutex()

  constructor(private readonly run: ParentRun) {}

  /**
   * Inserts each list once.
   *
   * Invariants: a child is inserted only while this step holds its parent. Its `_id` is the same however often the step is tried. Once the list's
   * number is stored under the step's token, none of its children is inserted again. Before the first is inserted, the document has stored the lowest
   * fence of its own children. So a step that is tried again can distinguish the children of the step before it from those of a former document with
   * its `_id`.
   */
  insert(given: readonly Child[], options?: unknown): Promise<void> {
    return this.turns.run(() => this.insertNow(given, options))
  }

  private async insertNow(given: readonly Child[], options: unknown): Promise<void> {
    const { phase } = this.run.held
    const { step } = this.run.progress
    const { children, list } = readChildren(given, options, step === undefined ? phase.name : `${phase.name}/${step}`)
    const before = childListsIn(this.run.progress)
    if (before.some((one) => one.list === list)) return
    const byLifecycle = [...Map.groupBy(children, ({ lifecycle }) => lifecycle)]
    if (before.length + Math.max(1, byLifecycle.length) > MOST_LISTS)
      throw new InvalidOutcome(
        `children: expected at most ${MOST_LISTS} lists of children in a document's life, got one more: '${list}'`,
      )
    // All are checked before the first is inserted.
    const prepared = await Promise.all(
      byLifecycle.map(async ([lifecycle, some]) => {
        const model = await this.modelOf(lifecycle)
        return { model, documents: some.map((child) => this.documentOf(child, model, list)) }
      }),
    )
    const from = this.fromFence
    if (from !== undefined && childrenFromIn(this.run.progress) === undefined && children.length > 0)
      await this.run.checkpoint({}, { childrenFrom: from, reason: 'its first children' })
    for (const { model, documents } of prepared)
      for (const part of inParts(documents)) await this.insertPart(model, part, from)
    const added = prepared.map(({ model, documents }) => ({ list, lifecycle: model.name, total: documents.length }))
    const lists = [...before, ...(added.length > 0 ? added : [{ list, lifecycle: null, total: 0 }])]
    const what = added.map(({ lifecycle, total }) => `${total} of ${lifecycle}`).join(', ')
    await this.run.checkpoint({}, { children: lists, reason: `children: ${what || 'none'}`.slice(0, 1_000) })
    this.run.env.related.inserted(prepared.map(({ model }) => model))
  }

  async done(options: ChildrenDoneOptions): Promise<ChildrenDone> {
    this.run.awaits = undefined
    const lists = childListsIn(this.run.progress)
    if (lists.length === 0)
      throw new InvalidOutcome('childrenDone: expected lists of children, got none: call step.children([...]) first')
    const { rule, parked, each, recheckMs } = readDoneOptions(options, totalOf(lists))
    const done = decide(rule, await this.count(lists), parked)
    if (!done.done)
      this.run.awaits = {
        ...{ stored: { kind: 'children', rule, parked, ...(each && { each }) }, recheckMs },
        on: ON_WORST[done.worst ?? 'open'],
      }
    return done
  }

  /** The children of one lifecycle as they are now, at most 1,000. */
  async documentsOf(lifecycle: unknown): Promise<Document[]> {
    const { name } = Object(lifecycle) as { name?: unknown }
    if (typeof name !== 'string') throw new InvalidOutcome(`childrenOf: expected a lifecycle, got ${shown(lifecycle)}`)
    const model = await this.modelOf(name)
    const of = this.ownOf(model)
    const total = totalOf(childListsIn(this.run.progress).filter((one) => one.lifecycle === name))
    return childDocuments(of, MOST_DOCUMENTS, total)
  }

  /**
   * Takes children down, each by its own lifecycle where that has a rule for this; returns the number that are left. Lists that were named are
   * forgotten once all their children are gone, under the step's token. So a step that is tried again has the same children left, or nothing to do.
   *
   * Invariants: no child is left that a step of this document has inserted, even if a crash came before it could store their list. So it looks at all
   * lifecycles of children before it reports that none is left. A step that has lost its document removes no child that a later holder has inserted,
   * however late its command is executed: those have a higher fence. (Where the server's clock was set back and the parent made anew, it waits until
   * the clock has caught up.)
   */
  remove(options?: unknown): Promise<ChildrenRemoved> {
    return this.turns.run(() => this.removeNow(options))
  }

  private async removeNow(options: unknown): Promise<ChildrenRemoved> {
    this.run.awaits = undefined
    const { state, lists } = readRemoveOptions(options)
    const before = childListsIn(this.run.progress)
    const meant = lists ? before.filter(({ list }) => lists.includes(list)) : before
    const names = new Set(meant.flatMap(({ lifecycle }) => lifecycle ?? []))
    const removed = async (some: Iterable<string>) => {
      const counts = await Promise.all([...some].map((name) => this.removeOf(name, state, lists)))
      return counts.reduce((sum, one) => sum + one, 0)
    }
    const left = (await removed(names)) || (await removed(await this.unlisted(names, lists)))
    if (lists && left === 0 && meant.length > 0) {
      const reason = `children removed: ${[...new Set(meant.map(({ list }) => list))].join(', ')}`.slice(0, 1_000)
      await this.run.checkpoint({}, { children: before.filter((one) => !meant.includes(one)), reason })
    }
    if (left > 0) {
      const stored = { kind: 'children', rule: 'allDone', parked: 'waits' } as const
      this.run.awaits = { stored, on: 'children', recheckMs: null }
    }
    return { done: left === 0, left, text: `${left} ${left === 1 ? 'child is' : 'children are'} left` }
  }

  /** The lifecycles that have children of it, and no list. */
  private async unlisted(listed: ReadonlySet<string>, lists: readonly string[] | undefined): Promise<string[]> {
    const { related } = this.run.env
    const others = (await related.childLifecycles()).filter((name) => !listed.has(name))
    const found = await Promise.all(
      others.map(async (name) => {
        const model = await related.modelOf(name)
        return model && (await hasChild({ ...related.childrenOf(model, this.parent), lists })) ? [name] : []
      }),
    )
    return found.flat()
  }

  private async removeOf(lifecycle: string, state: string, lists: readonly string[] | undefined): Promise<number> {
    const model = await this.modelOf(lifecycle)
    const { related } = this.run.env
    const of = { ...related.childrenOf(model, this.parent), lists }
    const isTakenDown = model.rules.some((rule) => rule.when === state)
    const final = [...model.phases.values()].filter(({ kind }) => kind === 'final').map(({ name }) => name)
    if (this.run.held.lease.leftMs() === 0) throw this.leaseLost()
    const theirs = { ...of, upToFence: this.run.fence }
    if (isTakenDown) await setChildrenState(theirs, state, final)
    if (!isTakenDown || lists) {
      const reason = `its parent removes its children: ${nameOf(this.parent)}`.slice(0, 500)
      await removeChildren(theirs, { by: this.run.held.lease.token, reason }, isTakenDown ? final : undefined)
    }
    if (isTakenDown || of.notifying) related.inserted([model])
    // Lists that may be inserted again must have no child there, not even one with undelivered callbacks.
    if (lists) return countChildrenBut({ ...of, notifying: undefined }, [])
    return countChildrenBut(of, isTakenDown ? final : [])
  }

  private async count(lists: readonly ChildList[]): Promise<ChildCounts> {
    const names = new Set(lists.flatMap(({ lifecycle }) => lifecycle ?? []))
    const all = await Promise.all(
      [...names].map(async (name) => {
        const model = await this.modelOf(name)
        const of = this.ownOf(model)
        const total = totalOf(lists.filter(({ lifecycle }) => lifecycle === name))
        return countsOf(await countChildren(of, endsOf(model), total), model, total)
      }),
    )
    return sumOf(all)
  }

  /** The children that this document has inserted, not a former one with its `_id`. */
  private ownOf(model: LifecycleModel): ChildrenOf {
    return this.run.env.related.childrenOf(model, this.parent, this.fromFence)
  }

  /** The lowest fence of its own children: this step's, if it has inserted none before. Undefined: a version inserted some that didn't store it. */
  private get fromFence(): number | undefined {
    const { progress, fence } = this.run
    return childrenFromIn(progress) ?? (childListsIn(progress).length === 0 ? fence : undefined)
  }

  private leaseLost(): LeaseLost {
    const { lifecycle, id } = this.parent
    return new LeaseLost(lifecycle, id, this.run.held.lease.token)
  }

  /** The document itself, as its children know it. */
  private get parent() {
    return { lifecycle: this.run.env.model.name, id: this.run.held.lease.id }
  }

  private async modelOf(lifecycle: string): Promise<LifecycleModel> {
    const model = await this.run.env.related.modelOf(lifecycle)
    if (!model)
      throw new UnknownChild(
        lifecycle,
        `expected a lifecycle that this replica runs or another one has registered, got '${lifecycle}': start a replica that runs it`,
      )
    if (model.settings.child) return model
    throw new UnknownChild(lifecycle, `'${lifecycle}' is no lifecycle of children: define it with child: true`)
  }

  private documentOf({ key, document }: Child, model: LifecycleModel, list: string): Document {
    const { entries, settings } = model
    const { lifecycle, id } = this.parent
    const derived = `${lifecycle}/${idText(id)}/${key}`
    const parent: StoredParent = { lifecycle, id, key, list, fence: this.run.fence }
    const { _id = derived, ...fields } = document as Document
    const complete: Document = { _id, phase: entries[0], ...fields, [settings.progress]: { parent } }
    checkDocument(model, complete, `${model.name}, child '${key}'`)
    return complete
  }

  private async insertPart(
    model: LifecycleModel,
    documents: readonly Document[],
    from: number | undefined,
  ): Promise<void> {
    const { held, env } = this.run
    const { collection, related } = env
    const { lease } = held
    if (lease.leftMs() === 0) throw this.leaseLost()
    const filter = { _id: lease.id as never, ...underClaimOf(lease.token), ...leaseUnmoved(env.model.settings) }
    await insertWhileHeld({ collection, filter }, documents, model.collection)
    const children = related.collectionOf(model)
    const { progress } = model.settings
    const projection = { [`${progress}.parent`]: 1 }
    const ids = documents.map(({ _id }) => _id as never)
    // As a majority has them: their number is about to be stored for good.
    const stored = await readOwnFields((how) =>
      children.find({ _id: { $in: ids } }, { projection, hint: ID_INDEX, ...COMMITTED, ...how }).toArray(),
    )
    const found = new Map(stored.map((one) => [idKey(one['_id']), parentIn(one[progress])]))
    for (const { _id, [progress]: own } of documents) {
      // Nothing was there, and nothing was inserted: another replica holds the parent.
      if (!found.has(idKey(_id))) throw this.leaseLost()
      const there = found.get(idKey(_id))
      if (!isSame(there, own.parent)) throw new ChildExists(model.name, _id, whoseIs(there))
      if (isOfFormer(there, from)) throw new ChildExists(model.name, _id, whoseIs(there, true), there.list)
    }
  }
}

const isSame = (there: StoredParent | undefined, own: StoredParent): there is StoredParent =>
  there !== undefined && isSameDocument(there, own) && there.key === own.key && there.list === own.list

const whoseIs = (parent: StoredParent | undefined, isFormer = false): string =>
  parent
    ? `the child '${parent.key}' of ${isFormer ? 'a former ' : ''}${nameOf(parent)} (${typeName(parent.id)})${isFormer ? ', which is gone' : ' already'} (its list '${parent.list}')`
    : "there already, and is nobody's child"

const totalOf = (lists: readonly ChildList[]): number => lists.reduce((sum, { total }) => sum + total, 0)

function* inParts(documents: readonly Document[]): Generator<Document[]> {
  let part: Document[] = []
  let bytes = 0
  for (const document of documents) {
    const size = BSON.calculateObjectSize(document)
    if (part.length > 0 && (part.length === MOST_AT_ONCE || bytes + size > MOST_BYTES)) {
      yield part
      part = []
      bytes = 0
    }
    part.push(document)
    bytes += size
  }
  if (part.length > 0) yield part
}
