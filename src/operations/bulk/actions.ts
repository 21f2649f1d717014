import type { Collection, Document, Filter } from 'mongodb'
import { type Operating, operationRemoval, operationWrites, type Terms, whyUnmatched } from '../../lock/index.js'
import { type LifecycleModel, whyUnknownState } from '../../phases/index.js'
import { UsageError } from '../errors.js'
import type { ActionName } from './operation.js'

/** What an action needs to know of its documents' lifecycle, and of who acts. */
export interface Acting {
  readonly model: LifecycleModel
  readonly documents: Collection
  readonly terms: Terms
  readonly operating: Operating
  readonly options: Document
}

/** What became of one document: done, as it was already, or why it was left alone. */
export type Acted = 'done' | 'unchanged' | { readonly skipped: string }

interface Action {
  /** What it takes besides the selection. */
  readonly takes: readonly string[]
  /** @throws UsageError for options that don't fit the lifecycle */
  check(model: LifecycleModel, options: Document): void
  /** Acts on one document, in one write that is conditional on all that has to be so. */
  act(acting: Acting, id: unknown): Promise<Acted>
}

const nothingToCheck = () => undefined

const WHY = {
  gone: 'it is gone',
  held: 'it is held, so it is being worked on',
  parked: 'it is parked',
  changed: 'it was changed meanwhile, and is not meant any more',
} as const

async function written(acting: Acting, id: unknown, [filter, update]: [Filter<Document>, Document[]]): Promise<Acted> {
  const { matchedCount } = await acting.documents.updateOne(filter, update)
  return matchedCount > 0 ? 'done' : unmatched(acting, id)
}

async function unmatched(
  { documents, terms, operating }: Acting,
  id: unknown,
  words: Partial<Readonly<Record<keyof typeof WHY, string>>> = {},
): Promise<Acted> {
  const why = await whyUnmatched(documents, terms, id, operating.operation)
  return why === 'done' ? why : { skipped: { ...WHY, ...words }[why] }
}

export const actions: Readonly<Record<ActionName, Action>> = {
  wake: {
    takes: [],
    check: nothingToCheck,
    async act(acting, id) {
      const [filter, update] = operationWrites.wake(acting.terms, id, acting.operating)
      const { matchedCount } = await acting.documents.updateOne(filter, update)
      if (matchedCount > 0) return 'done'
      return unmatched(acting, id, { parked: 'it is parked: unpark it', changed: 'it is not asleep' })
    },
  },
  unpark: {
    takes: [],
    check: nothingToCheck,
    async act(acting, id) {
      const [filter, update] = operationWrites.unpark(acting.terms, id, acting.operating)
      const { matchedCount } = await acting.documents.updateOne(filter, update)
      if (matchedCount > 0) return 'done'
      const parked = 'it is parked, and Phaselock has stored nothing in it; set its lockedAt to null'
      return unmatched(acting, id, { parked, changed: 'it is not parked' })
    },
  },
  'set-state': {
    takes: ['state', 'force'],
    check(model, { state, force }) {
      if (typeof state !== 'string') throw new UsageError('expected the state to be set (--to-state), got none')
      const problem = force === true ? undefined : whyUnknownState(model, state)
      if (problem !== undefined)
        throw new UsageError(
          problem,
          { reason: 'unknownState', got: state, known: model.rules.map(({ when }) => when) },
          '--force stores it anyway, for handlers that read it',
        )
    },
    async act(acting, id) {
      const { state } = acting.options
      const where = { $and: [acting.operating.where, { state: { $ne: state } }] }
      const operating = { ...acting.operating, where }
      const acted = await written(
        { ...acting, operating },
        id,
        operationWrites.setState(acting.terms, id, operating, state),
      )
      if (acted === 'done' || (await acting.documents.countDocuments({ _id: id as never, state }, { limit: 1 })) === 0)
        return acted
      return 'unchanged'
    },
  },
  remove: {
    takes: [],
    check: nothingToCheck,
    async act(acting, id) {
      const { deletedCount } = await acting.documents.deleteOne(operationRemoval(acting.terms, id, acting.operating))
      if (deletedCount > 0) return 'done'
      const acted = await unmatched(acting, id)
      // By this operation, before whoever ran it was killed, or by somebody else: it is gone, as it was to be.
      return typeof acted === 'object' && acted.skipped === WHY.gone ? 'done' : acted
    },
  },
}
