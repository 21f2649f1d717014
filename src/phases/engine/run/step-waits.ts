import type { Document } from 'mongodb'
import {
  addWaiter,
  answerIn,
  awaitsIn,
  COMMITTED,
  canBeId,
  childrenFromIn,
  type DeadlineHold,
  type DocumentName,
  hasToken,
  ID_INDEX,
  idKey,
  idText,
  isOfFormer,
  isRemovedPhase,
  LEASE_FIELDS,
  NO_ID,
  parentIn,
  questionIn,
  readOwnFields,
  type StoredAwaits,
  type StoredQuestion,
  underHold,
} from '../../../lock/index.js'
import { withFormerFields } from '../../../options/index.js'
import { InvalidOutcome } from '../../errors/errors.js'
import { shown } from '../../errors/kept-text.js'
import type { LifecycleModel } from '../../model/model.js'
import { type Reached, requireKnown } from '../../outcome/outcome.js'
import { readRecheck } from '../../step/children.js'
import type { Progress, StepAnswer } from '../../step/step.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import type { Held } from '../lease/held.js'

/**
 * The longest recheck for a document that is held. Its running step may move it without knowing its waiters, so the usual back-off, which begins with
 * a second, replaces a longer recheck.
 */
const RECHECK_OF_HELD_MS = 5_000
/** The most hops to follow in a chain of documents that wait for each other. */
const MOST_HOPS = 20

/** A condition that a step has found undecided: its document sleeps until it is decided, or until it has to look again. */
export interface Awaits {
  readonly stored: StoredAwaits
  /** The kind of wait that it is counted by, unless its handler names another. */
  readonly on: string
  /** The time until it looks again; null: as for any other wait. */
  readonly recheckMs: number | null
}

interface WaitingRun {
  readonly held: Held
  readonly env: LifecycleEnvironment
  readonly progress: Progress
  awaits: Awaits | undefined
}

/**
 * Waits for another document's phase. The waiter is added to the other document before that is read, so either this step sees the move, or the move
 * sees the waiter. Only a step of the other one that is already running misses it.
 */
export async function waitFor(run: WaitingRun, target: unknown, options?: unknown): Promise<Reached> {
  run.awaits = undefined
  const { lifecycle, id, phases } = read(target)
  const recheckMs = readRecheck(requireKnown('waitFor', options ?? {}, ['recheck'])['recheck'], 'waitFor')
  const { related, model } = run.env
  const other = await modelOf(run, lifecycle)
  const unknown = phases.find((phase) => !other.phases.has(phase))
  if (unknown !== undefined)
    throw new InvalidOutcome(
      `waitFor: expected phases of ${lifecycle} (${[...other.phases.keys()].join(', ')}), got ${shown(unknown)}`,
    )
  const self = { lifecycle: model.name, id: run.held.lease.id }
  if (isSameDocument(self, { lifecycle, id })) throw new InvalidOutcome('waitFor: the document waits for itself')
  const of = { collection: related.collectionOf(other), progress: other.settings.progress }
  await addWaiter(of, id, phases, self)
  const found = await look(run, other, id)
  const phase = typeof found?.['phase'] === 'string' ? found['phase'] : undefined
  const name = nameOf({ lifecycle, id })
  if (phase !== undefined && phases.includes(phase)) return whereOf(true, phase, `${name} is in ${phase}`)
  const chain = await circleTo(run, self, { lifecycle, id }, found)
  if (chain) throw new InvalidOutcome(`waitFor: documents wait for each other in a circle: ${chain.join(' -> ')}`)
  const isHeld = found !== undefined && hasToken(found)
  const stored = { kind: 'document', lifecycle, id, phases } as const
  run.awaits = { stored, on: 'document', recheckMs: isHeld && recheckMs > RECHECK_OF_HELD_MS ? null : recheckMs }
  const where = phase === undefined ? 'is not there' : `is in ${phase}, not in ${phases.join(' or ')}`
  return whereOf(false, phase, `${name} ${where}`)
}

const whereOf = (done: boolean, phase: string | undefined, text: string): Reached =>
  withFormerFields('waitFor', { done, phase, text }, { reached: 'done' })

function read(target: unknown) {
  const { lifecycle, id, phases } = Object(target) as Record<string, unknown>
  if (typeof lifecycle !== 'string')
    throw new InvalidOutcome(`waitFor: expected a document's phases (lifecycle.at(id, 'Phase')), got ${shown(target)}`)
  if (id === null || !canBeId(id))
    throw new InvalidOutcome(`waitFor: expected the _id of a document (${NO_ID}, nor null), got ${shown(id)}`)
  if (!Array.isArray(phases) || phases.length === 0 || phases.length > 100)
    throw new InvalidOutcome(`waitFor: expected 1 to 100 phases, got ${shown(phases)}`)
  return { lifecycle, id, phases: phases as string[] }
}

async function modelOf({ env }: WaitingRun, lifecycle: string): Promise<LifecycleModel> {
  const model = await env.related.modelOf(lifecycle)
  if (model) return model
  throw new InvalidOutcome(
    `waitFor: expected a lifecycle that this replica runs or another one has registered, got '${lifecycle}'`,
  )
}

/** Reads a document as a majority has it: a phase that is undone must not let a waiter go on. */
async function look({ env }: WaitingRun, model: LifecycleModel, id: unknown): Promise<Document | undefined> {
  const { progress } = model.settings
  const projection = { ...LEASE_FIELDS, phase: 1, [`${progress}.awaits`]: 1, [`${progress}.childrenFrom`]: 1 }
  const [found] = await readOwnFields((how) =>
    env.related
      .collectionOf(model)
      .find({ _id: id as never }, { projection, hint: ID_INDEX, limit: 1, ...COMMITTED, ...how })
      .toArray(),
  )
  // A removed one is there only until its callbacks are delivered.
  return isRemovedPhase(found?.['phase']) ? undefined : found
}

/** The way from a document to itself, if the document that it would wait for waits for it: through other waits, or as a parent for its children. */
async function circleTo(
  run: WaitingRun,
  self: DocumentName,
  first: DocumentName,
  foundFirst: Document | undefined,
): Promise<string[] | undefined> {
  const chain = [self, first]
  let found = foundFirst
  for (let hop = 0; found && hop < MOST_HOPS; hop += 1) {
    const at = chain.at(-1)!
    const model = await run.env.related.modelOf(at.lifecycle)
    const progress: unknown = found[model?.settings.progress ?? 'progress']
    const awaits = awaitsIn(progress)
    const parent = parentIn(run.progress)
    const isItsParent = parent && isSameDocument(parent, at) && !isOfFormer(parent, childrenFromIn(progress))
    if (awaits?.kind === 'children' && isItsParent) return [...chain, self].map(nameOf)
    if (awaits?.kind !== 'document') return undefined
    chain.push(awaits)
    if (isSameDocument(awaits, self)) return chain.map(nameOf)
    const next = await run.env.related.modelOf(awaits.lifecycle)
    found = next && (await look(run, next, awaits.id))
  }
  return undefined
}

export const isSameDocument = (one: DocumentName, other: DocumentName): boolean =>
  one.lifecycle === other.lifecycle && idKey(one.id) === idKey(other.id)
export const nameOf = ({ lifecycle, id }: DocumentName): string => `${lifecycle} ${idText(id)}`

/** The last question of the document's step, and its answer; `answer` undefined: it is still open. */
export interface Asked {
  readonly question: StoredQuestion
  readonly answer: StepAnswer | undefined
}

/** An answer whose former field is refused. */
export const refusingComment = (answer: StepAnswer): StepAnswer =>
  withFormerFields('step.answer', answer, { comment: 'reason' })

/**
 * Reads the question from a document's progress.
 * @param now the server's time
 * @param hold set while a step of the server's clock isn't confirmed: no question ends by that
 */
export function askedIn(progress: unknown, now: () => Date, hold: () => DeadlineHold | undefined): Asked | undefined {
  const question = questionIn(progress)
  if (!question) return undefined
  const { question: text, deadline, onTimeout } = question
  const stored = answerIn(progress, question)
  if (stored) {
    const { option, by, at, comment } = stored
    const answer = { question: text, option, by, at, reason: comment ?? undefined, timedOut: false }
    return { question, answer: refusingComment(answer) }
  }
  if (!deadline) return { question, answer: undefined }
  if (underHold(deadline, hold()) > now()) return { question, answer: undefined }
  const option = onTimeout ?? undefined
  return {
    question,
    answer: { question: text, option, by: 'timeout', at: deadline, reason: undefined, timedOut: true },
  }
}
