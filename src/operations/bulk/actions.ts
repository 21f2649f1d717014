import type { Collection, Db, Document } from 'mongodb'
import {
  addCancel,
  addPause,
  claimOf,
  heldUnder,
  idBytes,
  isDefiniteRefusal,
  isForgotten,
  MOST_PAUSES,
  type Operating,
  operationWrites,
  pendingState,
  readOwnFields,
  removeByOperation,
  removePause,
  type Terms,
  type Write,
  wasActedOn,
  whyUnmatched,
} from '../../lock/index.js'
import {
  type LifecycleModel,
  notifyingOf,
  ownersOf,
  RESERVED_FIELDS,
  whyUnknownState,
  workingPhases,
} from '../../phases/index.js'
import { UsageError } from '../system/errors.js'
import { type Change, changeId, changeNamed } from './changes.js'
import type { Acted, ActionName } from './operation.js'
import { whyNotKept } from './selection.js'

/** The context of an action: its documents' lifecycle, and the author of the operation. */
export interface Acting {
  readonly model: LifecycleModel
  readonly documents: Collection
  readonly terms: Terms
  readonly operating: Operating
  readonly options: Document
  readonly db: Db
  readonly by: string
  readonly why: string | null
}

/**
 * Calls an action and turns a definite refusal into a failure of this document alone. An unreachable database fails the step, which is
 * tried again.
 */
export async function unlessRefused(act: () => Promise<Acted>, document?: unknown): Promise<Acted> {
  try {
    return await act()
  } catch (error) {
    if (!isDefiniteRefusal(error)) throw error
    return { failed: error.message, document }
  }
}

interface Action {
  /** The options that it takes besides the selection. */
  readonly takes: readonly string[]
  /** @throws UsageError for options that don't fit the lifecycle */
  check(model: LifecycleModel, options: Document): void
  /** True if it takes documents in phases that the lifecycle doesn't have. */
  readonly anyPhase?: true
  /** The owner's fields that it sets, if it can be undone. `state` means that it sets only the state, even of documents that are held. */
  changes?(options: Document): 'state' | readonly string[]
  /**
   * Acts on one document, in one write that is conditional on everything that must hold.
   * @param turned its number in the operation, which is the same each time that its page is repeated; and the token of its holder when the
   *   page was read
   */
  act(acting: Acting, id: unknown, turned: { readonly number: number; readonly token: string | null }): Promise<Acted>
}

const nothingToCheck = () => undefined

/** Thrown when the operation has to wait before it continues. */
export class TooMany extends Error {
  override readonly name = 'TooMany'
}

function requireOwnFields({ settings }: LifecycleModel, set: Document): void {
  const taken = [...RESERVED_FIELDS, settings.progress]
  const wrong = Object.keys(set).find((field) => taken.includes(field) || /^\$|[.\0]/.test(field) || field === '')
  if (wrong !== undefined)
    throw new UsageError(`set (--set): expected fields of the documents' owner, at their top level, got '${wrong}'`, {
      reason: 'invalidField',
      fields: [wrong],
    })
  const problem = whyNotKept(set)
  if (problem !== undefined) throw new UsageError(`set (--set): expected fields that can be stored: ${problem}`)
}

const WHY = {
  notFound: 'it is gone',
  held: 'it is held, so it is being worked on',
  parked: 'it is parked',
  notParked: 'it was changed meanwhile, and is not meant any more',
} as const

type Words = Partial<Readonly<Record<keyof typeof WHY, string>>>

/** @param words the reasons why it may not have been done, where they have others than {@link WHY} */
async function written(acting: Acting, id: unknown, write: Write, words?: Words): Promise<Acted> {
  const { matchedCount } = await acting.documents.updateOne(...write)
  return matchedCount > 0 ? 'done' : unmatched(acting, id, words)
}

async function unmatched({ documents, terms, operating }: Acting, id: unknown, words?: Words): Promise<Acted> {
  const why = await whyUnmatched(documents, terms, id, operating.operation)
  return why === 'done' ? why : { skipped: { ...WHY, ...words }[why] }
}

const isSo = async ({ documents }: Acting, id: unknown, fields: Document): Promise<boolean> =>
  (await documents.countDocuments({ _id: id as never, ...fields }, { limit: 1 })) > 0

async function putBack(acting: Acting, { document: id, before, state }: Change): Promise<Acted> {
  const { documents, terms, operating, options } = acting
  const { of, action } = options
  const { set = {}, phase = before.phase, ...more } = options['options'] as Document
  const write =
    action === 'set-state'
      ? operationWrites.setStateBack(terms, id, operating, { of, before, wanted: state, state: more['state'] })
      : operationWrites.putBack(terms, id, operating, { of, before, set, phase, wakes: action !== 'migrate' })
  const { matchedCount } = await documents.updateOne(...write)
  if (matchedCount > 0) return 'done'
  const [now] = await readOwnFields((how) =>
    documents
      .find({ _id: id as never }, how)
      .limit(1)
      .toArray(),
  )
  if (now && wasActedOn(now, terms, operating.operation)) return 'done'
  if (!now) return { skipped: WHY.notFound, document: id }
  if (!wasActedOn(now, terms, of) && !isForgotten(now, terms, of)) return 'unchanged'
  const { operations, stateBy: last } = now[terms.progress] as Document
  const later: unknown = action === 'set-state' ? last : operations.at(-1)
  if (typeof later === 'string' && later !== of)
    return { skipped: `operation ${later} has acted on it since: undo that one first`, document: id }
  const why = action === 'set-state' ? 'its owner wants something else by now' : 'it has gone on since, or was changed'
  return { skipped: why, document: id }
}

export const actions: Readonly<Record<ActionName, Action>> = {
  wake: {
    takes: [],
    check: nothingToCheck,
    async act(acting, id) {
      const words = { parked: 'it is parked: unpark it', notParked: 'it is not asleep' }
      return written(acting, id, operationWrites.wake(acting.terms, id, acting.operating), words)
    },
  },
  unpark: {
    takes: [],
    check: nothingToCheck,
    changes: () => [],
    async act(acting, id) {
      const parked = 'it is parked, and Phaselock has stored nothing in it; set its lockedAt to null'
      const words = { parked, notParked: 'it is not parked' }
      return written(acting, id, operationWrites.unpark(acting.terms, id, acting.operating), words)
    },
  },
  'set-state': {
    takes: ['state', 'force'],
    changes: () => 'state',
    check(model, { state, force }) {
      if (typeof state !== 'string') throw new UsageError('state (--to-state): expected the state to be set, got none')
      const problem = force === true ? undefined : whyUnknownState(model, state)
      if (problem !== undefined)
        throw new UsageError(
          problem,
          { reason: 'unknownState', got: state, known: model.rules.map(({ when }) => when) },
          'force (--force) stores it anyway, for handlers that read it',
        )
    },
    async act(acting, id) {
      const { state } = acting.options
      const isAnother = { $or: [{ state: { $ne: state } }, { [pendingState(acting.terms)]: { $exists: true } }] }
      const where = { $and: [acting.operating.where, isAnother] }
      const operating = { ...acting.operating, where }
      const acted = await written(acting, id, operationWrites.setState(acting.terms, id, operating, state))
      return acted === 'done' || !(await isSo(acting, id, { state })) ? acted : 'unchanged'
    },
  },
  redo: {
    takes: ['phase', 'step', 'set'],
    changes: ({ set = {} }) => Object.keys(set),
    check(model, { phase, step, set }) {
      const working = workingPhases(model)
      if (phase !== undefined && !working.includes(phase))
        throw new UsageError(
          `expected a phase of ${model.name} with a handler (${working.join(', ')}), got '${phase}'`,
          { reason: 'unknownPhase', got: phase, known: working },
        )
      if (step === '') throw new UsageError('step (--to-step): expected the name of a step, got an empty string')
      requireOwnFields(model, set ?? {})
    },
    async act(acting, id) {
      const { model, operating, options } = acting
      const { phase, step, set = {} } = options
      const where =
        phase === undefined ? { $and: [operating.where, { phase: { $in: workingPhases(model) } }] } : operating.where
      const write = operationWrites.redo(acting.terms, id, { ...operating, where }, { phase, step, set })
      const changed = 'it was changed meanwhile, or its phase has no handler: phase (--to-phase) says where it begins'
      return written(acting, id, write, { parked: changed, notParked: changed })
    },
  },
  migrate: {
    takes: ['phase'],
    anyPhase: true,
    changes: () => [],
    check(model, { phase }) {
      const known = [...model.phases.values()].filter(({ kind }) => kind !== 'final').map(({ name }) => name)
      if (typeof phase === 'string' && known.includes(phase)) return
      throw new UsageError(
        `phase (--to-phase): expected where to, a phase of ${model.name} that isn't final (${known.join(', ')}), got ${phase === undefined ? 'none' : `'${phase}'`}`,
        { reason: 'unknownPhase', got: phase, known },
      )
    },
    async act(acting, id) {
      const { phase } = acting.options
      const acted = await written(acting, id, operationWrites.migrate(acting.terms, id, acting.operating, phase))
      return acted === 'done' || !(await isSo(acting, id, { phase })) ? acted : 'unchanged'
    },
  },
  pause: {
    takes: [],
    check: nothingToCheck,
    async act({ db, model, operating, by, why }, id, { number }) {
      if (idBytes(id) > 1_000) return { skipped: 'its _id is longer than 1000 bytes: pause its phase' }
      const pause = { target: { what: 'document', _id: id }, by, reason: why, end: null } as const
      const { kind } = await addPause(db, model.name, pause, changeId(operating.operation, number))
      return kind === 'paused' || kind === 'marked'
        ? 'done'
        : { skipped: `${MOST_PAUSES} pauses of ${model.name} are in force: pause a phase` }
    },
  },
  resume: {
    takes: [],
    check: nothingToCheck,
    async act({ db, model, operating, by }, id, { number }) {
      const mark = changeId(operating.operation, number)
      const verdict = await removePause(db, model.name, { what: 'document', _id: id }, { by }, mark)
      if (!verdict) return 'unchanged'
      return verdict.ended
        ? 'done'
        : { skipped: `others have paused it (${ownersOf(verdict.before)}): resume --of says whose ends` }
    },
  },
  cancel: {
    takes: [],
    check: nothingToCheck,
    async act({ db, documents, model, terms, by, why }, id, { token }) {
      const claim = token === null ? undefined : claimOf(token)
      const held = claim === undefined ? undefined : await heldUnder(documents, id, terms)
      // Another claim of it is not the target: the step that was to be cancelled has ended.
      if (claim === undefined || held?.claim !== claim) return { skipped: 'no step of it runs' }
      const verdict = await addCancel(db, model.name, { _id: id, claim, by, reason: why })
      if (verdict === 'tooMany') throw new TooMany('200 steps were cancelled within ten minutes')
      return 'done'
    },
  },
  undo: {
    takes: ['of', 'action', 'options'],
    check: nothingToCheck,
    async act(acting, change) {
      const found = await changeNamed(acting.db, String(change))
      if (!found) return { skipped: 'nobody knows any more what it was before' }
      return unlessRefused(() => putBack(acting, found), found.document)
    },
  },
  remove: {
    takes: [],
    check: nothingToCheck,
    async act(acting, id) {
      const { documents, model, terms, operating } = acting
      if (await removeByOperation(documents, terms, notifyingOf(model), id, operating)) return 'done'
      const acted = await unmatched(acting, id)
      // Removed by this operation before its process was killed, or by another client: the document is gone, as intended.
      return typeof acted === 'object' && 'skipped' in acted && acted.skipped === WHY.notFound ? 'done' : acted
    },
  },
}
