import type { Db, Document, Filter } from 'mongodb'
import { learnSharding, protocolCollection } from '../../database/index.js'
import {
  addCancel,
  CANCELLED,
  cancelText,
  childListsIn,
  childrenFromIn,
  claimOf,
  hasInserted,
  heldUnder,
  idKey,
  isParked,
  MissingIndex,
  openChildren,
  parkIdle,
  parkIdleChildren,
  readOwnFields,
  removedPhase,
  type StoppedBy,
  tokenOf,
} from '../../lock/index.js'
import { endsOf, type LifecycleModel, notifyingOf } from '../model/model.js'
import { registeredModels, termsInForce } from '../model/registered.js'
import type { CancelResult } from './owner-types.js'

interface Stop {
  readonly id: unknown
  readonly by: string
  readonly reason: string | null
  /** True if what no replica holds is parked: the document, and its children. */
  readonly evenIdle: boolean
  /** The condition on the document. With it, a step that was asked to stop already is left alone: `notHeld`. */
  readonly where?: Filter<Document> | undefined
}

export interface Stopped {
  readonly verdict: CancelResult
  /** The token of the document's holder, which was asked; null: none was. */
  readonly token: string | null
  /** The lifecycles whose replicas have something to do now. */
  readonly ring: readonly string[]
}

/** Asks the holder of a document to stop its step. */
export async function askToStop(
  db: Db,
  model: LifecycleModel,
  { id, evenIdle, where, ...who }: Stop,
): Promise<Stopped> {
  const stop = new StopAll(db, who)
  const verdict = await stop.document(model, id, evenIdle, where)
  const { token } = stop
  if (!evenIdle || verdict === 'notFound') return { verdict, token, ring: stop.ring }
  const below = await stop.childrenOf(model, id)
  const worst = verdict === 'notHeld' || verdict === 'stopped' ? (below ?? verdict) : verdict
  return { verdict: worst, token, ring: stop.ring }
}

/**
 * Stops documents for one person. What is held is asked to stop; what is not is parked.
 *
 * Invariant: where the verdict on a document and its children is `stopped` or `notHeld`, no step of any of them runs, and none begins before a
 * person or their owner goes on with one. So a document is stopped before its children are looked for: parked, it inserts no more of them.
 */
class StopAll {
  /** The token of the document's holder, once it was asked. */
  token: string | null = null
  private readonly rung = new Set<string>()
  private readonly seen = new Set<string>()
  private children: Promise<readonly LifecycleModel[]> | undefined

  constructor(
    private readonly db: Db,
    private readonly who: { readonly by: string; readonly reason: string | null },
  ) {}

  get ring(): readonly string[] {
    return [...this.rung]
  }

  async document(
    model: LifecycleModel,
    id: unknown,
    evenIdle: boolean,
    where?: Filter<Document>,
  ): Promise<CancelResult> {
    const terms = await termsInForce(this.db, model)
    const documents = protocolCollection(this.db, model.collection)
    const held = await heldUnder(documents, id, { ...model.settings, lockTimeoutMs: terms.lockTimeoutMs }, where)
    const isFirst = where !== undefined && Object.keys(where).length > 0
    if (held?.claim) {
      const verdict = await this.ask(model, held._id, held.claim, isFirst)
      if (verdict === 'asked') this.token = held.token ?? null
      return verdict
    }
    if (!held || !evenIdle) return held ? 'notHeld' : 'notFound'
    // Else somebody has claimed it meanwhile, or has parked it, or it has ended.
    if (!(await parkIdle(documents, terms, id, endedIn(model), this.why))) return 'notHeld'
    this.parked(model)
    return 'stopped'
  }

  /** Stops the children of a document that hasn't ended, and theirs. Undefined: none of them was running or is to be. */
  async childrenOf(model: LifecycleModel, id: unknown): Promise<CancelResult | undefined> {
    const { progress } = model.settings
    const filter = { _id: id as never, phase: { $nin: endedIn(model) }, ...hasInserted(progress) }
    const projection = { [`${progress}.childrenFrom`]: 1 }
    const documents = protocolCollection(this.db, model.collection)
    const [parent] = await readOwnFields((how) => documents.find(filter, { projection, limit: 1, ...how }).toArray())
    return parent && this.below(model, parent)
  }

  private async below(model: LifecycleModel, parent: Document): Promise<CancelResult | undefined> {
    const id: unknown = parent['_id']
    // Only a person's edits can have made documents each other's children.
    const name = `${model.name} ${idKey(id)}`
    if (this.seen.has(name)) return undefined
    this.seen.add(name)
    this.children ??= this.childLifecycles()
    let verdict: CancelResult | undefined
    for (const one of await this.children) {
      const fromFence = childrenFromIn(parent[model.settings.progress])
      verdict = worse(verdict, await this.ofLifecycle(one, { lifecycle: model.name, id }, fromFence))
    }
    return verdict
  }

  private async ofLifecycle(
    model: LifecycleModel,
    parent: { readonly lifecycle: string; readonly id: unknown },
    fromFence: number | undefined,
  ): Promise<CancelResult | undefined> {
    const { progress } = model.settings
    const collection = protocolCollection(this.db, model.collection)
    const of = { collection, progress, parent, fromFence, notifying: notifyingOf(model) }
    const open = openIn(model)
    let verdict: CancelResult | undefined
    try {
      if ((await parkIdleChildren(of, await termsInForce(this.db, model), open, this.why)) > 0) {
        verdict = 'stopped'
        this.parked(model)
      }
      for (const child of await openChildren(of, open)) {
        const claim = claimOf(tokenOf(child) ?? '')
        if (claim !== undefined) verdict = worse(verdict, await this.ask(model, child['_id'], claim))
        // It has ended its step, or was woken, since the others were parked: it is open still.
        else if (!isParked(child)) verdict = worse(verdict, 'asked')
        if (mayHaveChildren(child[progress])) verdict = worse(verdict, await this.below(model, child))
      }
      return verdict
    } catch (error) {
      // No replica has ever run it: it has no documents.
      if (error instanceof MissingIndex) return verdict
      throw error
    }
  }

  private async ask(model: LifecycleModel, _id: unknown, claim: string, isFirst = false): Promise<CancelResult> {
    const verdict = await addCancel(this.db, model.name, { _id, claim, ...this.who }, isFirst)
    if (verdict === 'askedBefore') return 'notHeld'
    if (verdict === 'asked') this.rung.add(model.name)
    return verdict
  }

  /** What is parked may have callbacks to deliver. */
  private parked({ name, settings }: LifecycleModel): void {
    if (settings.callbacks) this.rung.add(name)
  }

  private get why(): StoppedBy {
    return { by: this.who.by, error: { name: CANCELLED, message: cancelText(this.who) } }
  }

  private async childLifecycles(): Promise<readonly LifecycleModel[]> {
    const models = await registeredModels(this.db, { child: true })
    await learnSharding(
      this.db,
      models.map(({ collection }) => collection),
    )
    return models
  }
}

const endedIn = (model: LifecycleModel): string[] => [...endsOf(model), removedPhase(model.name)]

/** The phases in which a document hasn't ended: another lifecycle may have its own in the same collection. */
function openIn(model: LifecycleModel): string[] {
  const ends = endsOf(model)
  return [...model.phases.keys(), ...model.renames.map(({ from }) => from)].filter((phase) => !ends.includes(phase))
}

const mayHaveChildren = (progress: unknown): boolean =>
  childrenFromIn(progress) !== undefined || childListsIn(progress).length > 0

/** What says more about documents of which one is to stop: that it runs on comes before that it is parked. */
const ORDER: readonly (CancelResult | undefined)[] = ['notRegistered', 'tooMany', 'asked', 'stopped', undefined]
const worse = (one: CancelResult | undefined, other: CancelResult | undefined) =>
  ORDER.indexOf(one) <= ORDER.indexOf(other) ? one : other
