import { type Collection, type Db, type Document, type Filter } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import {
  addPause,
  type OnDuplicate,
  openQuestions,
  pauseTarget,
  readForOwner,
  releaseFutureLease,
  removedPhase,
  removePause,
  setState,
  storeAnswer,
  TASK_LOCK_INIT_TIME,
  type Terms,
  termsOf,
  unconfirmedStepMs,
  unpark,
  type Write,
  wake,
  whyUnwritten,
} from '../../lock/index.js'
import { checkOptions, t } from '../../options/index.js'
import { isObject } from '../model/check-graph.js'
import { type LifecycleModel, workingPhases } from '../model/model.js'
import { termsInForce } from '../model/registered.js'
import {
  cancelOptions,
  checkCall,
  checkId,
  checkState,
  inSession,
  NO_OPTIONS,
  newAnswer,
  newPause,
  OwnerAudit,
  pausedEnd,
  readQuestionsOptions,
  resumed,
  resumedEnd,
  severalPauses,
  stateOptions,
  unparkOptions,
} from './owner-calls.js'
import { OwnerInserts } from './owner-inserts.js'
import { OwnerRings } from './owner-rings.js'
import type {
  AnswerOptions,
  AnswerResult,
  CancelOptions,
  CancelResult,
  DocumentQuestion,
  DuplicateOptions,
  IdOf,
  InsertOptions,
  InsertResult,
  NewDocument,
  OwnerCall,
  OwnerClientOptions,
  OwnerOptions,
  OwnerVerdict,
  PauseOptions,
  PauseResult,
  QuestionsOptions,
  ResumeOptions,
  StateOf,
  StateOptions,
  StoredDocument,
  UnparkOptions,
} from './owner-types.js'
import { writesOf } from './predicted-writes.js'
import { removeAndWake } from './removal.js'
import { askToStop, type Stopped } from './stop.js'

const ownerParts = t.object({
  db: t.aDatabase,
  model: t.where(
    (value) => isObject(value) && value['phases'] instanceof Map,
    t.expecting("a lifecycle's model (`lifecycle.model`)"),
  ),
})

/**
 * The operations of an owner (a person, or a program besides the replicas) on documents of one lifecycle. Each method is one conditional update
 * judged by the database, so it can't conflict with a holder: nothing here touches a held document's lease. The result is a value; what can't be
 * right at all (an unknown phase or state, a key that is taken) is an exception.
 *
 * Replicas are notified immediately of new work (docs/doorbell.md). That is a hint: no method waits for it or fails because of it.
 */
export class OwnerClient<Doc = Document, Entry extends string = string, Phase extends string = string> {
  /** The collection, with the write concern of the lock protocol: for queries of your own. */
  readonly documents: Collection
  private readonly terms: Terms
  private readonly rings: OwnerRings
  private readonly audit: OwnerAudit
  private readonly inserts: OwnerInserts
  /** Matches documents that aren't removed; removed ones stay only until their callbacks are delivered. */
  private readonly living: Filter<Document>
  private readonly where: Filter<Document>

  constructor(
    private readonly db: Db,
    /** The lifecycle whose documents it owns. */
    readonly model: LifecycleModel,
    options: OwnerClientOptions = {},
  ) {
    checkOptions('an OwnerClient', ownerParts, { db, model })
    this.rings = new OwnerRings(db, model, options)
    this.documents = protocolCollection(db, model.collection)
    const { where = {} } = options
    this.where = where
    this.living = model.settings.callbacks ? { $and: [{ phase: { $ne: removedPhase(model.name) } }, where] } : where
    this.terms = termsOf(model.settings.lockTimeoutMs, { progress: model.settings.progress })
    const { documents, terms, rings } = this
    this.audit = new OwnerAudit(db, model, documents)
    this.inserts = new OwnerInserts({ db, model, documents, terms, rings, audit: this.audit })
  }

  /**
   * Inserts a document; without a `phase` it starts in the first entry phase. Returns its `_id`.
   * @throws InvalidDocument for an unknown phase, or a value that can't be stored as it is; DocumentExists. Nothing is inserted then
   */
  async insert(
    doc: NewDocument<Doc, Entry>,
    options?: OwnerOptions & { readonly onDuplicate?: undefined },
  ): Promise<IdOf<Doc>>
  /**
   * Inserts a document, or does what `onDuplicate` says where one with its `_id` exists (docs/inserting.md). It is one command, judged by the
   * database, so no insert is lost, however many run at the same time.
   * @example await reports.insert({ _id: 'ann', rows }, { onDuplicate: 'replaceWaiting' }) // { id: 'ann', kind: 'replaced' }
   * @throws InvalidDocument as without it, or where the existing document is in an unknown phase; DocumentExists by a unique index of yours, or where
   * the existing document is removed and has only callbacks to deliver; InvalidOptions
   */
  async insert(doc: NewDocument<Doc, Entry>, options: DuplicateOptions): Promise<InsertResult<IdOf<Doc>>>
  async insert(
    doc: NewDocument<Doc, Entry>,
    options: OwnerOptions & { readonly onDuplicate?: OnDuplicate | undefined } = NO_OPTIONS,
  ): Promise<IdOf<Doc> | InsertResult<IdOf<Doc>>> {
    if (options?.onDuplicate !== undefined || 'dueIn' in Object(options))
      return this.inserts.upsert(doc as Document, options) as Promise<InsertResult<IdOf<Doc>>>
    const [id] = await this.inserts.insertAll('insert', [doc], options)
    return id as IdOf<Doc>
  }

  /** @throws InvalidDocument as `insert` does: then none of them is inserted; DocumentExists: those before it are */
  async insertMany(
    docs: readonly NewDocument<Doc, Entry>[],
    options: InsertOptions = NO_OPTIONS,
  ): Promise<IdOf<Doc>[]> {
    return (await this.inserts.insertAll('insertMany', docs, options)) as IdOf<Doc>[]
  }

  /** Reads the document as it is now; null: it doesn't exist. */
  async find(id: IdOf<Doc>, options: OwnerOptions = NO_OPTIONS): Promise<StoredDocument<Doc, Phase> | null> {
    checkCall('find', id, options)
    const found = readForOwner(this.documents, id, this.terms.progress, inSession(options))
    return found as Promise<StoredDocument<Doc, Phase> | null>
  }

  /**
   * Sets the state that the owner wants; a state rule moves the document when no replica holds it.
   * @throws UnknownState for one that no rule names, unless with `{ force: true }`
   */
  async setState(id: IdOf<Doc>, state: StateOf<Doc>, options: StateOptions = NO_OPTIONS): Promise<OwnerVerdict> {
    checkCall('setState', id, options, stateOptions)
    checkState(this.model, state, options)
    const act = () => setState(this.documents, this.terms, id, state, inSession(options), this.living)
    const verdict = await this.audit.recordOn(id, options, 'set-state', act, { state })
    if (verdict === 'done' && this.rings.isRuled(state)) this.rings.look(options)
    return verdict
  }

  /** Ends a sleep: the document is due immediately. A held document is being worked on already; a parked one needs `unpark`. */
  async wake(id: IdOf<Doc>, options: OwnerOptions = NO_OPTIONS): Promise<OwnerVerdict> {
    checkCall('wake', id, options)
    const act = async () =>
      this.madeDue(
        await wake(this.documents, await this.termsInForce(), id, inSession(options), this.living),
        id,
        options,
      )
    return this.audit.recordOn(id, options, 'wake', act, { lockedAt: TASK_LOCK_INIT_TIME })
  }

  /** Gives a parked document another go, with its attempts and claims at 0. */
  async unpark(id: IdOf<Doc>, options: UnparkOptions = NO_OPTIONS): Promise<OwnerVerdict> {
    checkCall('unpark', id, options, unparkOptions)
    const { documents, terms, where } = this
    const { by = options.audit?.by ?? 'owner', force } = options
    const session = inSession(options)
    const act = async () => {
      const isDone =
        (await unpark(documents, terms, id, by, session, where)) ||
        (force === true && (await releaseFutureLease(documents, terms, id, by, session, where)))
      return this.madeDue(isDone, id, options)
    }
    return this.audit.recordOn(id, options, 'unpark', act, { lockedAt: TASK_LOCK_INIT_TIME, attempts: 0 })
  }

  private async madeDue(isDone: boolean, id: IdOf<Doc>, options: OwnerOptions): Promise<OwnerVerdict> {
    if (!isDone) return whyUnwritten(this.documents, id, inSession(options))
    this.rings.look(options)
    return 'done'
  }

  /**
   * Deletes a document outright, even a held one: its holder's outcome is then dropped as lost. One whose callbacks (docs/callbacks.md) have events
   * to deliver counts as removed immediately, and is deleted once they are delivered; until then its `_id` is taken.
   * @returns `notFound` also for one that is removed already
   */
  async remove(id: IdOf<Doc>, options: OwnerOptions = NO_OPTIONS): Promise<OwnerVerdict> {
    checkCall('remove', id, options)
    const { db, model, terms, rings } = this
    const { by = 'owner', reason = null } = options.audit ?? {}
    const ring = (lifecycles: readonly string[]) => rings.look({}, lifecycles)
    const act = async () => {
      const removed = await removeAndWake(db, model, { id, terms, by: { by, reason }, session: options.session, ring })
      if (removed === 'told') rings.look(options)
      return removed ? ('done' as const) : ('notFound' as const)
    }
    return this.audit.recordOn<OwnerVerdict>(id, options, 'remove', act, null)
  }

  /**
   * Pauses the lifecycle, a phase or a document (docs/pausing.md): running steps end, no other begins, on no replica. An earlier pause of the same
   * target by the same person is replaced; those of others stay. In force on each replica with its next look.
   * @example await orders.pause({ phase: 'Packing', by: 'ana', reason: 'no ink', for: '2h' })
   * @throws InvalidOptions
   */
  async pause(options: PauseOptions<Doc, Phase>): Promise<PauseResult> {
    const pause = newPause(this.model, options)
    const { by, reason, audit } = options
    const about = { action: 'pause', target: pauseTarget(this.model.name, pause.target) }
    const act = () => addPause(this.db, this.model.name, pause)
    const { kind } = await this.audit.record(audit ? { audit: { by, reason } } : {}, about, act, (end) =>
      end.kind === 'paused' ? pausedEnd(end) : { outcome: 'refused', problem: end.kind },
    )
    if (kind !== 'paused') return kind
    this.rings.look({})
    return 'done'
  }

  /**
   * Ends a pause; due documents go on immediately. Pauses of other targets stay (a phase's beside the lifecycle's), and those of other people.
   * @returns true if it was paused
   * @throws InvalidOptions, also where several people have paused it and `of` doesn't say whose pause ends
   */
  async resume(options: ResumeOptions<Doc, Phase> = {}): Promise<boolean> {
    const { target, of } = resumed(this.model, options)
    const about = { action: 'resume', target: pauseTarget(this.model.name, target) }
    const act = () => removePause(this.db, this.model.name, target, { by: options.audit?.by, of })
    const verdict = await this.audit.record(options, about, act, resumedEnd)
    if (verdict?.ended) this.rings.look({})
    else if (verdict && of === undefined) throw severalPauses('resume', verdict.before)
    return verdict?.ended !== undefined
  }

  /**
   * Asks the running step of a document to stop, wherever it runs (docs/pausing.md): its signal aborts within a second. The document stays leased
   * until its handler has ended. Then it is parked, with the person and the reason, unless the handler has moved it on. `evenIdle`: its children, too.
   * @example await orders.cancel('order-4711', { by: 'ana', reason: 'stuck' }) // 'asked'
   * @throws InvalidOptions
   */
  async cancel(id: IdOf<Doc>, options: CancelOptions): Promise<CancelResult> {
    return (await this.askToStop(id, options)).verdict
  }

  /**
   * The same, with the token of the holder that was asked; null: none was.
   * @internal
   */
  async askToStop(id: IdOf<Doc>, options: CancelOptions): Promise<Pick<Stopped, 'verdict' | 'token'>> {
    checkId('cancel', id)
    const { by, reason = null, audit, evenIdle = false } = checkOptions('cancel', cancelOptions, options)
    let asked: string | null = null
    const act = async () => {
      const { where } = this
      const { verdict, token, ring } = await askToStop(this.db, this.model, { id, by, reason, evenIdle, where })
      if (ring.length > 0) this.rings.look({}, ring)
      asked = token
      return verdict
    }
    const audited = audit ? { audit: { by, reason: reason ?? undefined } } : {}
    return { verdict: await this.audit.recordOn(id, audited, 'cancel', act, undefined), token: asked }
  }

  /**
   * Answers the question that a document asks (docs/questions.md); its handler then runs immediately, with `step.answer`. Only one answer counts: a
   * second one, and one that comes after the question's time, change nothing.
   * @example await orders.answer('order-4711', { option: 'yes', by: 'ana' }) // { kind: 'answered', question: 'Ship it?', option: 'yes' }
   * @throws InvalidOptions
   */
  async answer(id: IdOf<Doc>, options: AnswerOptions): Promise<AnswerResult> {
    checkId('answer', id)
    const answer = newAnswer(options)
    const [terms, heldBackMs] = await Promise.all([this.termsInForce(), unconfirmedStepMs(this.db, this.model.name)])
    const act = () => storeAnswer(this.documents, terms, id, answer, { ...inSession(options), heldBackMs }, this.where)
    const about = { action: 'answer', document: id }
    const result = await this.audit.record(options, about, act, ({ kind }) =>
      kind === 'answered'
        ? { outcome: 'done', after: { answer: answer.option } }
        : { outcome: 'refused', problem: kind },
    )
    if (result.kind === 'answered') this.rings.look(options)
    return result
  }

  /**
   * The open questions of this lifecycle's documents, oldest first. Reads one key and one document for each that sleeps in a working phase.
   * @throws InvalidOptions; MissingIndex where no replica has run the lifecycle yet
   */
  async questions(options: QuestionsOptions = {}): Promise<DocumentQuestion<Doc, Phase>[]> {
    const which = readQuestionsOptions(options)
    const found = await openQuestions(this.documents, this.terms, workingPhases(this.model), which)
    return found as DocumentQuestion<Doc, Phase>[]
  }

  /**
   * The writes of a call, to be predicted.
   * @internal
   */
  writesOf(id: IdOf<Doc>, call: OwnerCall): Promise<readonly Write[] | string> {
    const { documents, terms, living, where } = this
    const inForce = () => this.termsInForce()
    const heldBackMs = () => unconfirmedStepMs(this.db, this.model.name)
    return writesOf({ documents, terms, inForce, heldBackMs, where, living }, id, call)
  }

  /** Resolves when replicas have been notified of the writes, or that was given up (after a second at most): for a program that ends. */
  flush(): Promise<void> {
    return this.rings.flush()
  }

  /** The terms in force: where other writers lease by `lockedAt` alone, these distinguish leases from sleeps. */
  private async termsInForce(): Promise<Terms> {
    return this.model.settings.legacyWriters ? termsInForce(this.db, this.model) : this.terms
  }
}
