import type { ChildrenInPhase, ChildrenRule } from '../../lock/index.js'
import { numbered, withFormerFields } from '../../options/index.js'
import { type Duration, durationMs } from '../../time/index.js'
import { InvalidOutcome } from '../errors/errors.js'
import { cut, shown } from '../errors/kept-text.js'
import { endPhases, type LifecycleModel } from '../model/model.js'
import { requireKnown } from '../outcome/outcome.js'

/** A document that a step inserts as a child of its own: made by a lifecycle's `child`. */
export interface Child {
  /** The lifecycle that it belongs to. */
  readonly lifecycle: string
  /** The name that its parent gives it: unique among its children of this lifecycle, at most 200 characters. */
  readonly key: string
  /** The document to insert. Without an `_id` it gets one made of its parent's lifecycle and `_id`, and of its key. */
  readonly document: object
}

/** The options for inserting a list of children. */
export interface ChildrenOptions {
  /** The name under which the list is inserted once: at most 200 characters. Default: the phase, and the step's name if it has one. */
  readonly list?: string | undefined
}

/** The rule by which a document's children are done, and how parked ones count. */
export interface ChildrenDoneOptions {
  /**
   * `allSucceeded`, `allDone` (however they ended), `anyFailed`, or a number of successes, such as `2 of 3`. It is decided as soon as the rest can't
   * change it.
   */
  readonly rule: ChildrenRule
  /** A parked child `waits` for a person, and its parent with it; or it counts as failed (`fails`). Default `waits`. */
  readonly parked?: 'waits' | 'fails' | undefined
  /**
   * The child's end that wakes the document: the one that `decided` it, or `each`, for a handler that goes by more than counts. Default `decided`.
   */
  readonly wake?: 'decided' | 'each' | undefined
  /** The time that the document sleeps at most before its children are counted again, in case the last one's end isn't reported. Default 1m. */
  readonly recheck?: Duration | undefined
}

/** The states of a document's children, the worst first. */
export const CHILD_STATES = ['parked', 'failed', 'removed', 'open', 'succeeded'] as const
/** The state of a child, as its parent counts it. */
export type ChildState = (typeof CHILD_STATES)[number]

/** The number of a document's children in each state. */
export interface ChildCounts extends Readonly<Record<ChildState, number>> {
  /** The number of all its children, with those that no longer exist (`removed`). */
  readonly total: number
  /** Those that wait for a person. */
  readonly parked: number
  /** Those in a phase with `failed: true`. */
  readonly failed: number
  /** Those that no longer exist. */
  readonly removed: number
  /** Those that go on. */
  readonly open: number
  /** Those that have ended in any other phase. */
  readonly succeeded: number
}

/** The state of a document's children by a rule. */
export interface ChildrenDone {
  /** True once the rule is decided. Until then: `return step.wait(ended.text)`, and the document is woken when it is. */
  readonly done: boolean
  /** True if the rule is met; false until it is decided. */
  readonly met: boolean
  /** The number of children in each state. */
  readonly counts: ChildCounts
  /** The worst state of any of them; undefined: it has no children. */
  readonly worst: ChildState | undefined
  /** For people: `2 of 3 children have ended (1 failed)`. */
  readonly text: string
}

/** The options for removing a document's children before it. */
export interface RemoveChildrenOptions {
  /**
   * The owner's state that is set on them; a rule of their lifecycle takes them down. Those of a lifecycle without a rule for it are deleted
   * outright, as soon as no replica holds them. Default `Deleted`.
   */
  readonly state?: string | undefined
  /**
   * Only the children of these lists, such as the phases that inserted them; those in a final phase, too. Once all of them are gone, the lists are
   * forgotten: the same step may insert them again. Lists that it doesn't have are left out. Default: all children, whose lists stay.
   */
  readonly lists?: readonly string[] | undefined
}

/** The progress of removing a document's children. */
export interface ChildrenRemoved {
  /** True once all are gone, or final. Until then: `return step.wait(gone.text)`. */
  readonly done: boolean
  /** The number of children that are left. */
  readonly left: number
  /** For people: `2 children are left`. */
  readonly text: string
}

const LONGEST_NAME = 200
const RULES = ['allSucceeded', 'allDone', 'anyFailed']
const N_OF_M = /^([1-9]\d{0,8}) of ([1-9]\d{0,8})$/
const DEFAULT_RECHECK = '1m'
const LONGEST_RECHECK_MS = 24 * 3_600_000

/** The worst state that any child is in. */
export const worstOf = (counts: Readonly<Record<ChildState, number>>): ChildState | undefined =>
  CHILD_STATES.find((state) => counts[state] > 0)

/** The counts in words: `2 of 3 children have ended (1 failed, 1 parked)`. */
export function countsText(counts: ChildCounts): string {
  const { total, parked, open } = counts
  const bad = (['parked', 'failed', 'removed'] as const).flatMap((state) =>
    counts[state] > 0 ? [`${counts[state]} ${state}`] : [],
  )
  const some = bad.length > 0 ? ` (${bad.join(', ')})` : ''
  return `${Math.max(0, total - parked - open)} of ${total} ${total === 1 ? 'child has' : 'children have'} ended${some}`
}

/** The number of successes that a rule asks for; undefined: it isn't such a rule. */
export function successesFor(rule: ChildrenRule): { readonly n: number; readonly m: number } | undefined {
  const [, n, m] = N_OF_M.exec(rule) ?? []
  return n === undefined ? undefined : { n: Number(n), m: Number(m) }
}

/** The verdict of a rule on these counts. A removed child has failed: its end will never be known. */
export function decide(rule: ChildrenRule, counts: ChildCounts, parked: 'waits' | 'fails'): ChildrenDone {
  const failed = counts.failed + counts.removed + (parked === 'fails' ? counts.parked : 0)
  const left = counts.open + (parked === 'fails' ? 0 : counts.parked)
  const said = { counts, worst: worstOf(counts), text: countsText(counts) }
  const verdict = (done: boolean, met: boolean): ChildrenDone =>
    withFormerFields('childrenDone', { done, met: done && met, ...said }, { decided: 'done' })
  const some = successesFor(rule)
  if (some) {
    const isMet = counts.succeeded >= some.n
    return verdict(isMet || counts.succeeded + left < some.n, isMet)
  }
  switch (rule) {
    case 'allSucceeded':
      return verdict(failed > 0 || left === 0, failed === 0)
    case 'anyFailed':
      return verdict(failed > 0 || left === 0, failed > 0)
    default:
      return verdict(left === 0, true)
  }
}

/** Sums up counts by phase into counts by state; a child that no longer exists was removed. */
export function countsOf(found: readonly ChildrenInPhase[], model: LifecycleModel, inserted: number): ChildCounts {
  const { succeeded, failed } = endPhases(model)
  const sum = (isMeant: (one: (typeof found)[number]) => boolean) =>
    found.reduce((n, one) => n + (isMeant(one) ? one.count : 0), 0)
  const isIn = (phases: readonly string[]) => (one: { phase: unknown }) => phases.includes(one.phase as string)
  const counts = { succeeded: sum(isIn(succeeded)), failed: sum(isIn(failed)), parked: sum((one) => one.parked) }
  const there = sum(() => true)
  const open = there - counts.succeeded - counts.failed - counts.parked
  return { ...counts, open, removed: Math.max(0, inserted - there), total: Math.max(inserted, there) }
}

export function sumOf(all: readonly ChildCounts[]): ChildCounts {
  const sum = (state: keyof ChildCounts) => all.reduce((n, one) => n + one[state], 0)
  const [parked, failed, removed] = [sum('parked'), sum('failed'), sum('removed')]
  return { total: sum('total'), succeeded: sum('succeeded'), parked, failed, open: sum('open'), removed }
}

/** @throws InvalidOutcome for a value that isn't a rule, or a rule about another number of children */
export function readDoneOptions(options: unknown, total: number) {
  const {
    rule,
    parked = 'waits',
    wake = 'decided',
    recheck = DEFAULT_RECHECK,
  } = requireKnown('childrenDone', options, ['rule', 'parked', 'wake', 'recheck'])
  const wrong = (expected: string, got: unknown) =>
    new InvalidOutcome(`childrenDone: expected ${expected}, got ${shown(got)}`)
  if (typeof rule !== 'string' || !(RULES.includes(rule) || N_OF_M.test(rule)))
    throw wrong(`a rule, one of ${RULES.join(', ')} or '2 of 3'`, rule)
  const some = successesFor(rule as ChildrenRule)
  if (some && (some.m !== total || some.n > some.m))
    throw wrong(`a rule about its ${numbered(total, 'child', 'children')}, such as '1 of ${total}'`, rule)
  if (parked !== 'waits' && parked !== 'fails') throw wrong("parked to be 'waits' or 'fails'", parked)
  if (wake !== 'decided' && wake !== 'each') throw wrong("wake to be 'decided' or 'each'", wake)
  const each = wake === 'each'
  return { rule: rule as ChildrenRule, parked, each, recheckMs: readRecheck(recheck, 'childrenDone') } as const
}

/** @throws InvalidOutcome */
export function readRecheck(value: unknown, what: string): number {
  let ms: number
  try {
    ms = durationMs((value ?? DEFAULT_RECHECK) as Duration)
  } catch (error) {
    throw new InvalidOutcome(`${what}: recheck: ${(error as Error).message}`)
  }
  if (ms >= 1_000 && ms <= LONGEST_RECHECK_MS) return ms
  throw new InvalidOutcome(`${what}: expected recheck to be 1s to 24h, got ${shown(value)}`)
}

/** @throws InvalidOutcome */
export function readRemoveOptions(options: unknown) {
  const { state = 'Deleted', lists } = requireKnown('removeChildren', options ?? {}, ['state', 'lists'])
  if (!isName(state))
    throw new InvalidOutcome(`removeChildren: expected a state of 1 to ${LONGEST_NAME} characters, got ${shown(state)}`)
  if (lists !== undefined && !(Array.isArray(lists) && lists.every(isName)))
    throw new InvalidOutcome(`removeChildren: expected the names of lists, such as ['Shipping'], got ${shown(lists)}`)
  return { state, lists: lists as readonly string[] | undefined }
}

/** @throws InvalidOutcome for a value that isn't a list of children with keys of their own */
export function readChildren(children: unknown, options: unknown, defaultList: string) {
  const { list = defaultList } = requireKnown('children', options ?? {}, ['list'])
  if (!isName(list))
    throw new InvalidOutcome(
      `children: expected the list's name to have 1 to ${LONGEST_NAME} characters, got ${shown(list)}`,
    )
  if (!Array.isArray(children))
    throw new InvalidOutcome(
      `children: expected a list of children (lifecycle.child(key, document)), got ${shown(children)}`,
    )
  const seen = new Set<string>()
  for (const child of children) {
    const { lifecycle, key, document } = Object(child) as Record<string, unknown>
    if (typeof lifecycle !== 'string' || typeof document !== 'object' || document === null)
      throw new InvalidOutcome(`children: expected lifecycle.child(key, document), got ${shown(child)}`)
    if (!isName(key))
      throw new InvalidOutcome(`children: expected a key of 1 to ${LONGEST_NAME} characters, got ${shown(key)}`)
    // It would be stored as another character. The child would not be found again under the _id that is made of its key.
    if (!key.isWellFormed())
      throw new InvalidOutcome(
        `children: expected a key of whole characters, got ${shown(key)}: half of one (a surrogate) can't be stored; was it cut?`,
      )
    const whole = JSON.stringify([lifecycle, key])
    if (seen.has(whole))
      throw new InvalidOutcome(`children: two of ${lifecycle} have the key '${cut(key, 'stepName')}'`)
    seen.add(whole)
  }
  return { children: children as readonly Child[], list }
}

const isName = (value: unknown): value is string =>
  typeof value === 'string' && value !== '' && value.length <= LONGEST_NAME
