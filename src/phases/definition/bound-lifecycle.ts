import type { Db, Document } from 'mongodb'
import { CALLBACK_NAMES } from '../../lock/index.js'
import { meant, shown } from '../../options/index.js'
import type { Alongside } from '../background/background.js'
import { InvalidLifecycle, NotAttached } from '../errors/errors.js'
import { isObject } from '../model/check-graph.js'
import { type LifecycleModel, workingPhases } from '../model/model.js'
import { OwnerClient } from '../owner/owner-client.js'
import type { EntryOf, OwnerClientOptions } from '../owner/owner-types.js'
import type { Callbacks } from '../step/callbacks.js'
import type { Handler } from '../step/step.js'

/** A handler as the engine calls it; its result is checked at run time. */
export type AnyHandler = Handler<string, Record<string, unknown>>

type Owner<Doc, G> = OwnerClient<Doc, EntryOf<G>, keyof G & string>

/**
 * A lifecycle with its handlers: a replica runs it, and an owner of its documents calls it. The owner's methods are those of `OwnerClient`, each one
 * conditional update; with `{ session }` they take part in the caller's transaction.
 * @throws InvalidLifecycle when a working phase has no handler, or a handler is for a phase that has none
 */
export class BoundLifecycle<Doc = Document, G = Record<string, unknown>> {
  /** The lifecycle's name, unique in its database. */
  readonly name: string
  private client: Owner<Doc, G> | undefined

  constructor(
    /** Its phases, rules and settings as they were checked. */
    readonly model: LifecycleModel,
    /** The handler of each working phase, by its name. */
    readonly handlers: Readonly<Record<string, AnyHandler>>,
    /** The functions of its `callbacks`, each by its name. */
    readonly callbacks: Callbacks = {},
    /** Background work on each replica that works. */
    readonly alongside: Alongside[] = [],
    /** Whether its handlers get numbers as the driver reads them by itself, whatever the database's options say. */
    readonly plainNumbers: boolean = false,
  ) {
    this.name = model.name
    const problems = [...handlerProblems(model, handlers), ...callbackProblems(model, callbacks)]
    if (problems.length > 0) throw new InvalidLifecycle(model.name, problems)
  }

  /** Attaches the owner's methods below to a database; a Replica does it for its lifecycles. */
  attach(db: Db, options?: OwnerClientOptions): this {
    this.client = new OwnerClient(db, this.model, options)
    return this
  }

  /**
   * Returns the same lifecycle for one of several apps in this process, each attached to a database of its own. This one is attached with it, so it
   * is that of the app that was attached last. @internal
   */
  forApp(): BoundLifecycle<Doc, G> {
    const own = new BoundLifecycle<Doc, G>(this.model, this.handlers, this.callbacks, this.alongside, this.plainNumbers)
    own.attach = (db, options) => {
      this.attach(db, options)
      return BoundLifecycle.prototype.attach.call(own, db, options) as typeof own
    }
    return own
  }

  /** Adds background work, which runs on each replica that works, from its start to its stop. To be called before that start. */
  runAlongside(work: Alongside): this {
    this.alongside.push(work)
    return this
  }

  /**
   * Returns all that an owner may do with documents of this lifecycle, as an object of its own.
   * @throws NotAttached before a database was given, as the methods below do
   */
  owner(): Owner<Doc, G> {
    if (!this.client) throw new NotAttached(this.name)
    return this.client
  }

  /**
   * Inserts a document in an entry phase; returns its `_id`. With `{ onDuplicate }` it returns the result instead (docs/inserting.md).
   * @throws InvalidDocument, DocumentExists: then nothing is inserted; InvalidOptions
   */
  readonly insert: Owner<Doc, G>['insert'] = (...given: [never, never]) => this.owner().insert(...given) as never
  /** @throws InvalidDocument as `insert` does: then none of them is inserted; DocumentExists: those before it are */
  readonly insertMany: Owner<Doc, G>['insertMany'] = (docs, options) => this.owner().insertMany(docs, options)
  /** Reads the document as it is now; null: it doesn't exist. */
  readonly find: Owner<Doc, G>['find'] = (id, options) => this.owner().find(id, options)
  /**
   * Sets the state that the owner wants; a state rule moves the document when no replica holds it. @throws UnknownState unless with `{ force: true }`
   */
  readonly setState: Owner<Doc, G>['setState'] = (id, state, options) => this.owner().setState(id, state, options)
  /** Ends a sleep: the document is due immediately. */
  readonly wake: Owner<Doc, G>['wake'] = (id, options) => this.owner().wake(id, options)
  /** Gives a parked document another go. */
  readonly unpark: Owner<Doc, G>['unpark'] = (id, options) => this.owner().unpark(id, options)
  /** Pauses the lifecycle, a phase or a document: running steps end, no other begins, on no replica. @throws InvalidOptions */
  readonly pause: Owner<Doc, G>['pause'] = (options) => this.owner().pause(options)
  /** Ends a pause; returns true if there was one. @throws InvalidOptions */
  readonly resume: Owner<Doc, G>['resume'] = (scope) => this.owner().resume(scope)
  /** Asks the running step of a document to stop; it is then parked, with the person and the reason. @throws InvalidOptions */
  readonly cancel: Owner<Doc, G>['cancel'] = (id, options) => this.owner().cancel(id, options)
  /** Answers the question that a document asks; its handler runs immediately. @throws InvalidOptions */
  readonly answer: Owner<Doc, G>['answer'] = (id, options) => this.owner().answer(id, options)
  /** Lists the open questions, oldest first. @throws InvalidOptions; MissingIndex where no replica has run the lifecycle yet */
  readonly questions: Owner<Doc, G>['questions'] = (options) => this.owner().questions(options)
  /** Deletes a document outright, even a held one. */
  readonly remove: Owner<Doc, G>['remove'] = (id, options) => this.owner().remove(id, options)
}

function callbackProblems({ settings }: LifecycleModel, callbacks: Callbacks): string[] {
  if (!isObject(callbacks)) return [`handle: expected an object with callbacks by name, got ${shown(callbacks)}`]
  const { callbacks: declared = [] } = settings
  const missing = declared.filter((name) => typeof callbacks[name] !== 'function')
  const undeclared = Object.keys(callbacks).filter((name) => !declared.some((one) => one === name))
  return [
    ...missing.map(
      (name) => `callback '${name}' is missing; add { ${name}(event, call) { ... } } as the second argument of handle`,
    ),
    ...undeclared.map((name) =>
      CALLBACK_NAMES.some((known) => known === name)
        ? `callback '${name}' isn't declared; add it to callbacks: [...] of its definition`
        : `callback '${name}': expected one of ${CALLBACK_NAMES.join(', ')}${meant(name, CALLBACK_NAMES)}`,
    ),
  ]
}

function handlerProblems(model: LifecycleModel, handlers: Readonly<Record<string, AnyHandler>>): string[] {
  if (!isObject(handlers)) return [`handle: expected an object with handlers by phase, got ${shown(handlers)}`]
  const working = workingPhases(model)
  const missing = working.filter((name) => typeof handlers[name] !== 'function')
  const unknown = Object.keys(handlers).filter((name) => !working.includes(name))
  return [
    ...missing.map((name) => `working phase '${name}' has no handler; add ${name}(doc, step) { ... } to handle({...})`),
    ...unknown.map(
      (name) => `handler '${name}' isn't for a working phase${meant(name, working)}; working: ${working.join(', ')}`,
    ),
  ]
}
