import type { CallbackName } from '../../lock/index.js'
import { COLLECTION_NAME } from '../../options/index.js'
import { durationMs, InvalidDuration } from '../../time/index.js'
import { InvalidLifecycle } from '../errors/errors.js'
import { shown } from '../errors/kept-text.js'
import {
  cutProblems,
  entryPhases,
  graphProblems,
  isObject,
  type PhaseNode,
  type Phases,
  type RuleNode,
  ruleSources,
  soundPhases,
} from '../model/check-graph.js'
import type { LifecycleModel, Phase } from '../model/model.js'
import { parseSettings } from '../model/settings.js'
import type { DocumentPhases } from '../outcome/outcome.js'
import type { EntryOf, IdOf, NewChild, StateOf } from '../owner/owner-types.js'
import type { Callback, Callbacks } from '../step/callbacks.js'
import type { Child } from '../step/children.js'
import type { Handler, Step } from '../step/step.js'
import { type AnyHandler, BoundLifecycle } from './bound-lifecycle.js'
import type { FieldOf, Graph, LifecycleSettingsSpec, NextOf, ReadDocument, Reads, RuleSpec, Working } from './graph.js'
import { LimitsOf } from './limits.js'
import { onCallback, onPhase } from './on-phase.js'

/**
 * The state machine of one kind of document: its collection, phases, rules and settings.
 * @typeParam Read the part of a document that handlers get: less than `Doc` where `reads` says so
 */
export interface Lifecycle<Doc, G, Read = Doc> {
  /** The name, unique in its database: in `phaselock.lifecycles`, logs, metrics and commands. */
  readonly name: string
  /** The phases as they were declared. */
  readonly phases: G
  /** Phases, rules and settings as they were checked, with defaults filled in. */
  readonly model: LifecycleModel
  /**
   * Gives each working phase its handler, and each of the declared `callbacks` its function.
   * @example order.handle({ Packing }, { onMoved: ({ id, to }) => tellShop(id, to) })
   * @throws InvalidLifecycle for a phase without a handler, a callback that is declared and missing, or the other way round
   */
  handle(
    handlers: { readonly [P in Working<G>]: Handler<NextOf<G[P]>, Doc, Read> },
    callbacks?: Callbacks<Read, keyof G & string>,
  ): BoundLifecycle<Doc, G>
  /** Nest: a decorator bound to this lifecycle, so that the method (or the property) below it is checked against the phase. */
  OnPhase<P extends Working<G>>(phase: P): OnPhaseDecorator<Handler<NextOf<G[P]>, Doc, Read>>
  /** Nest: a decorator bound to this lifecycle; the method below it is one of its `callbacks`. */
  Callback(name: CallbackName): CallbackDecorator<Callback<Read, keyof G & string>>
  /**
   * A document of this lifecycle for `step.children` of another one (docs/children.md); it needs `child: true`.
   * @param key the name that its parent gives it: unique among the parent's children of this lifecycle, at most 200 characters
   * @example await step.children([parcel.child('left', { weight: 3 }), parcel.child('right', { weight: 5 })])
   */
  child(key: string, document: NewChild<Doc, EntryOf<G>>): Child
  /**
   * Phases of one of its documents, for `step.waitFor` of another one.
   * @example const there = await step.waitFor(order.at(doc.order, 'Shipped', 'Cancelled'))
   */
  at(id: IdOf<Doc>, ...phases: [keyof G & string, ...(keyof G & string)[]]): DocumentPhases
  /** Types only: `typeof gateway.$step.Creating`. */
  readonly $step: { readonly [P in Working<G>]: Step<NextOf<G[P]>, Doc> }
  /** Types only: the document as handlers get it. */
  readonly $doc: Read
}

interface OnPhaseDecorator<H> {
  (proto: object, key: string | symbol, method: TypedPropertyDescriptor<H>): void
  /** A property that holds a handler: one that `thread(...)` has made. It can't be private, because its type is checked. */
  <K extends string | symbol>(proto: { readonly [P in K]: H }, key: K): void
}

type CallbackDecorator<C> = <Method extends C>(
  proto: object,
  key: string | symbol,
  method: TypedPropertyDescriptor<Method>,
) => void

interface Owned {
  readonly state?: string
}

/** A document type may lack `state` (the check by key keeps it from being refused as a weak type), but not declare another type for it. */
type OwnerOf<Doc> = 'state' extends keyof Doc ? Owned : object

/** A declared phase can't be a renamed one. */
type Renamed<Names extends string> = Readonly<Record<string, Names>> & { readonly [P in Names]?: never }

/** The argument of `define`. */
export interface LifecycleSpec<Doc, G, Named extends Reads<Doc> | undefined = undefined>
  extends LifecycleSettingsSpec<Named> {
  /** The name, unique in its database; any text. It stands in `phaselock.lifecycles`, logs, metrics and commands. */
  readonly name: string
  /** The collection of its documents. Other lifecycles may share it, if no phase is in both. */
  readonly collection: string
  /** Each phase by its name: `{ next: [...] }` works, `{ rest: true }` rests, `{ final: true }` ends. */
  readonly phases: G
  /** The effects of the owner's `state`: each moves documents from some phases to another. Default: none. */
  readonly rules?: readonly RuleSpec<NoInfer<keyof G & string>, NoInfer<StateOf<Doc>>>[]
  /**
   * The field that holds a document's rank: 'urgent', 'high', 'normal' (the rank of documents without the field) or 'low'. Higher ranks are claimed
   * first, but each rank gets a share of every claim (docs/priority.md). Needs an index of its own. Default: the longest untouched first.
   */
  readonly priorityBy?: NoInfer<FieldOf<Doc>>
  /**
   * The field by whose values claims take turns, such as `tenantId`. However many documents of one value are due, others wait for no more than a few
   * claims (docs/priority.md). Needs an index of its own. Default: the longest untouched first.
   */
  readonly fairBy?: NoInfer<FieldOf<Doc>>
  /**
   * The field whose values have slots of their own, such as `tenantId`, with `each` (docs/limits.md). Its values take turns, as with `fairBy`.
   * Default: none.
   */
  readonly limitBy?: NoInfer<FieldOf<Doc>>
  /**
   * With `limitBy`: the number of documents of one value that all replicas together work on at the same time. Or `{ slots, rate }`, with the number
   * that may begin in a span of time.
   * @example 3
   * @example { slots: 3, rate: '10/1m' }
   */
  readonly each?: number | { readonly slots?: number; readonly rate?: string }
  /**
   * The fields by whose values people list documents: `phaselock list order --filter '{"customer": "4711"}'` (docs/cli.md#phaselock-list). Each needs an
   * index of its own; at most 5. Default: none.
   * @example ['customer']
   */
  readonly search?: readonly NoInfer<FieldOf<Doc>>[]
  /**
   * Phases that an older version had and this one lacks, each with the phase that replaces it. Documents in them go on there as soon as no replica of
   * the older version holds them. See docs/upgrading.md.
   */
  readonly renamed?: Renamed<NoInfer<keyof G & string>>
}

/**
 * Begins a lifecycle for documents of type `Doc`. Two calls because TypeScript has no partial inference: the first is given `Doc`, the second infers
 * the graph and the fields that handlers read.
 * @throws InvalidLifecycle (from `define`) listing every problem: unknown settings, names that aren't declared, phases
 *   that can't be reached, working phases with no way to an end
 */
export function lifecycleOf<Doc extends OwnerOf<Doc>>(): {
  /** Checks the whole and returns the definition; see {@link LifecycleSpec}. */
  define<const G extends Graph<G, StateOf<Doc>>, const Named extends Reads<Doc> | undefined = undefined>(
    spec: LifecycleSpec<Doc, G, Named>,
  ): Lifecycle<Doc, G, ReadDocument<Doc, Named>>
} {
  return {
    define(spec) {
      const model = modelOf(spec)
      return {
        name: model.name,
        phases: spec.phases,
        model,
        handle: (handlers, callbacks = {}) =>
          new BoundLifecycle(
            model,
            handlers as unknown as Readonly<Record<string, AnyHandler>>,
            callbacks as Callbacks,
          ),
        OnPhase: (phase) => onPhase(model, phase),
        Callback: (callback) => onCallback(model, callback),
        at: (id, ...phases) => ({ lifecycle: model.name, id, phases }),
        child: (key, document) => ({ lifecycle: model.name, key, document }),
        $step: undefined as never,
        $doc: undefined as never,
      }
    },
  }
}

function modelOf(spec: object): LifecycleModel {
  if (!isObject(spec))
    throw new InvalidLifecycle('?', [`expected an object with name, collection and phases, got ${shown(spec)}`])
  const { name, collection, phases, rules = [], renamed = {}, ...settings } = spec as Record<string, unknown>
  const problems: string[] = []
  for (const [field, value] of Object.entries({ name, collection })) {
    if (typeof value !== 'string' || value === '')
      problems.push(`${field} must be a non-empty string, got ${shown(value)}`)
    else problems.push(...cutProblems(field, value))
  }
  if (typeof collection === 'string' && collection !== '' && !COLLECTION_NAME.test(collection))
    problems.push(`collection must be a collection's name without $, got ${JSON.stringify(collection)}`)
  const own = typeof name === 'string' ? name : '?'
  if (typeof collection === 'string' && collection.startsWith('phaselock.') && !own.startsWith('phaselock-'))
    problems.push(`collection must be yours, got '${collection}': those called phaselock.* are Phaselock's own`)
  const nodes = (phases ?? {}) as Phases
  problems.push(...graphProblems(nodes, rules as RuleNode[], renamed))
  const parsed = parseSettings(settings, problems)
  const limits = new LimitsOf(own, parsed)
  const built = buildPhases(soundPhases(nodes), limits, problems)
  if (parsed?.child) problems.push(...childProblems(built))
  if (!parsed || problems.length > 0) throw new InvalidLifecycle(own, problems)
  return {
    name: own,
    collection: collection as string,
    phases: built,
    entries: entryPhases(nodes),
    rules: (rules as RuleNode[]).map((rule) => ({ ...rule, from: ruleSources(nodes, rule) })),
    renames: Object.entries(renamed as Record<string, string>).map(([from, to]) => ({ from, to })),
    ...(limits.declared.size > 0 && { declaredLimits: limits.declared }),
    settings: parsed,
  }
}

/** The problems of a child's phases: a child that is removed as soon as it has ended couldn't be counted. */
function childProblems(phases: Map<string, Phase>): string[] {
  const lost = [...phases.values()].filter(
    ({ kind, keepForMs, failed }) => kind === 'final' && keepForMs === 0 && !failed,
  )
  return lost.map(
    ({ name }) =>
      `phase '${name}' of a child is removed at once: give it a keepFor in which its parent counts it, or failed: true (what is gone counts as failed)`,
  )
}

function buildPhases(nodes: Phases, limits: LimitsOf, problems: string[]): Map<string, Phase> {
  const ms = (value: string | undefined, where: string) => {
    try {
      return value === undefined ? 0 : durationMs(value)
    } catch (error) {
      if (!(error instanceof InvalidDuration)) throw error
      problems.push(`${where}: ${error.message}`)
      return 0
    }
  }
  const phaseOf = (
    name: string,
    { final, rest, next = [], deadline, keepFor, failed, ...needs }: PhaseNode,
  ): Phase => ({
    ...(!final && !rest && limits.ofPhase(name, needs, problems)),
    ...(failed && { failed }),
    name,
    kind: final ? 'final' : rest ? 'resting' : 'working',
    next,
    deadline: deadline && {
      afterMs: ms(deadline.after, `phase '${name}'.deadline.after`),
      moveTo: deadline.moveTo,
      setState: deadline.setState,
    },
    keepForMs: ms(keepFor, `phase '${name}'.keepFor`),
  })
  return new Map(Object.entries(nodes).map(([name, node]) => [name, phaseOf(name, node)]))
}
