import type { Collection, Db, Document, Filter } from 'mongodb'
import {
  addCancel,
  addPause,
  claimOf,
  heldUnder,
  idBytes,
  idKey,
  isDefiniteRefusal,
  isForgotten,
  leaseStateOf,
  MOST_PAUSES,
  type Operating,
  operationWrites,
  ownerMeant,
  type Pause,
  pendingState,
  readOwnFields,
  removalFilters,
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
import { requireOpenPhase, requireWorkingPhase } from '../act/phases-meant.js'
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

/** The one write of an action to a document. */
interface Planned {
  readonly write: Write
  /** The reasons why a document isn't written, where they have others than {@link WHY}. */
  readonly words?: Words
  /** The fields of a document that needs no write. */
  readonly unchanged?: Document
}

/** A document that was read, by the server's time then. */
export interface Looked {
  readonly document: Document
  readonly now: Date
}

/** The context of a preview. `share`: the documents that were read, as a part of all. */
export interface Foreseeing extends Omit<Acting, 'why'> {
  readonly pauses: readonly Pause[]
  readonly share: number
}

/** What an action would do to documents, without doing it: `filters` of its writes to one, or what it says of each, called in the order of `_id`. */
export type Foresight =
  | (Omit<Planned, 'write'> & { readonly filters: readonly Filter<Document>[] })
  | { readonly judge: (looked: Looked) => Acted }

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
  /** Tells what `act` would do, by the very conditions of its writes. Absent: it can't be previewed. */
  foresee?(acting: Foreseeing): Foresight
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

/** The reason why an action hasn't written to a document. */
export const whyUndone = (why: keyof typeof WHY, words?: Words): string => ({ ...WHY, ...words })[why]

/** An action that is one write to a document. */
const writing = (plan: (acting: Omit<Acting, 'why'>, id: unknown) => Planned): Pick<Action, 'act' | 'foresee'> => ({
  async act(acting, id) {
    const { write, words, unchanged } = plan(acting, id)
    const { matchedCount } = await acting.documents.updateOne(...write)
    const acted = matchedCount > 0 ? 'done' : await unmatched(acting, id, words)
    return acted === 'done' || !unchanged || !(await isSo(acting, id, unchanged)) ? acted : 'unchanged'
  },
  foresee(acting) {
    const { write, ...rest } = plan(acting, null)
    return { ...rest, filters: [write[0]] }
  },
})

async function unmatched({ documents, terms, operating }: Acting, id: unknown, words?: Words): Promise<Acted> {
  const why = await whyUnmatched(documents, terms, id, operating.operation)
  return why === 'done' ? why : { skipped: whyUndone(why, words) }
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

const MOST_ID_BYTES = 1_000
const ID_TOO_LONG: Acted = { skipped: 'its _id is longer than 1000 bytes: pause its phase' }
const NO_STEP_RUNS: Acted = { skipped: 'no step of it runs' }
const tooManyPauses = ({ name }: LifecycleModel): Acted => ({
  skipped: `${MOST_PAUSES} pauses of ${name} are in force: pause a phase`,
})
const pausedByOthers = (pauses: readonly Pause[]): Acted => ({
  skipped: `others have paused it (${ownersOf(pauses)}): resume --of says whose ends`,
})

/** Those of single documents, by the key of their `_id`. */
const pausesById = (pauses: readonly Pause[]) =>
  Map.groupBy(
    pauses.filter((one) => one.what === 'document'),
    (one) => idKey(one._id),
  )

export const actions: Readonly<Record<ActionName, Action>> = {
  wake: {
    takes: [],
    check: nothingToCheck,
    ...writing(({ terms, operating }, id) => ({
      write: operationWrites.wake(terms, id, operating),
      words: { parked: 'it is parked: unpark it', notParked: 'it is not asleep' },
    })),
  },
  unpark: {
    takes: [],
    check: nothingToCheck,
    changes: () => [],
    ...writing(({ terms, operating }, id) => ({
      write: operationWrites.unpark(terms, id, operating),
      words: {
        parked: 'it is parked, and Phaselock has stored nothing in it; set its lockedAt to null',
        notParked: 'it is not parked',
      },
    })),
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
    ...writing(({ terms, operating, options: { state } }, id) => {
      const isAnother = { $or: [{ state: { $ne: state } }, { [pendingState(terms)]: { $exists: true } }] }
      const where = { $and: [operating.where, isAnother] }
      return { write: operationWrites.setState(terms, id, { ...operating, where }, state), unchanged: { state } }
    }),
  },
  redo: {
    takes: ['phase', 'step', 'set'],
    changes: ({ set = {} }) => Object.keys(set),
    check(model, { phase, step, set }) {
      requireWorkingPhase(model, phase)
      if (step === '') throw new UsageError('step (--to-step): expected the name of a step, got an empty string')
      requireOwnFields(model, set ?? {})
    },
    ...writing(({ model, terms, operating, options }, id) => {
      const { phase, step, set = {} } = options
      const where =
        phase === undefined ? { $and: [operating.where, { phase: { $in: workingPhases(model) } }] } : operating.where
      const write = operationWrites.redo(terms, id, { ...operating, where }, { phase, step, set })
      const changed = 'it was changed meanwhile, or its phase has no handler: phase (--to-phase) says where it begins'
      return { write, words: { parked: changed, notParked: changed } }
    }),
  },
  migrate: {
    takes: ['phase'],
    anyPhase: true,
    changes: () => [],
    check(model, { phase }) {
      requireOpenPhase(model, phase)
    },
    ...writing(({ terms, operating, options: { phase } }, id) => ({
      write: operationWrites.migrate(terms, id, operating, phase),
      unchanged: { phase },
    })),
  },
  pause: {
    takes: [],
    check: nothingToCheck,
    async act({ db, model, operating, by, why }, id, { number }) {
      if (idBytes(id) > MOST_ID_BYTES) return ID_TOO_LONG
      const pause = { target: { what: 'document', _id: id }, by, reason: why, end: null } as const
      const { kind } = await addPause(db, model.name, pause, changeId(operating.operation, number))
      return kind === 'paused' || kind === 'marked' ? 'done' : tooManyPauses(model)
    },
    foresee({ model, pauses, by, share }) {
      const own = new Set(
        [...pausesById(pauses)].flatMap(([key, some]) => (some.some((one) => one.by === by) ? key : [])),
      )
      // Of documents that are a sample, only their part of the free places is theirs.
      let left = Math.floor(Math.max(0, MOST_PAUSES - pauses.length) * share)
      const judge = ({ document: { _id } }: Looked): Acted => {
        if (idBytes(_id) > MOST_ID_BYTES) return ID_TOO_LONG
        if (own.has(idKey(_id))) return 'done'
        left -= 1
        return left >= 0 ? 'done' : tooManyPauses(model)
      }
      return { judge }
    },
  },
  resume: {
    takes: [],
    check: nothingToCheck,
    async act({ db, model, operating, by }, id, { number }) {
      const mark = changeId(operating.operation, number)
      const verdict = await removePause(db, model.name, { what: 'document', _id: id }, { by }, mark)
      if (!verdict) return 'unchanged'
      return verdict.ended ? 'done' : pausedByOthers(verdict.before)
    },
    foresee({ pauses, by }) {
      const byId = pausesById(pauses)
      const judge = ({ document: { _id } }: Looked): Acted => {
        const some = byId.get(idKey(_id))
        if (!some) return 'unchanged'
        const owner = ownerMeant(
          some.map((one) => one.by),
          { by },
        )
        return some.some((one) => one.by === owner) ? 'done' : pausedByOthers(some)
      }
      return { judge }
    },
  },
  cancel: {
    takes: [],
    check: nothingToCheck,
    async act({ db, documents, model, terms, by, why }, id, { token }) {
      const claim = token === null ? undefined : claimOf(token)
      const held = claim === undefined ? undefined : await heldUnder(documents, id, terms)
      // Another claim of it is not the target: the step that was to be cancelled has ended.
      if (claim === undefined || held?.claim !== claim) return NO_STEP_RUNS
      const verdict = await addCancel(db, model.name, { _id: id, claim, by, reason: why })
      if (verdict === 'tooMany') throw new TooMany('200 steps were cancelled within ten minutes')
      return 'done'
    },
    foresee({ terms }) {
      const judge = ({ document, now }: Looked): Acted => {
        const state = leaseStateOf(document, terms, now)
        return state.kind === 'held' && state.by !== undefined && claimOf(state.by) !== undefined
          ? 'done'
          : NO_STEP_RUNS
      }
      return { judge }
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
    foresee({ model, terms, operating: { where } }) {
      const { marked, deleted } = removalFilters(terms, notifyingOf(model), { _id: null, unlessHeld: true, where })
      return { filters: [...(marked ? [marked] : []), deleted] }
    },
  },
}
