import type { Collection, Document, Filter } from 'mongodb'
import {
  answerWrite,
  freeingWrite,
  hasToken,
  leaseFieldsOf,
  stateSet,
  type Terms,
  unparkWrite,
  type Write,
  wakeWrite,
} from '../../lock/index.js'
import { newAnswer } from './owner-calls.js'
import type { OwnerCall } from './owner-types.js'

/** What an owner's client makes its writes from. */
export interface WriteParts {
  readonly documents: Collection
  readonly terms: Terms
  /** The terms in force. */
  readonly inForce: () => Promise<Terms>
  readonly heldBackMs: () => Promise<number>
  /** The conditions of its writes; `living`: and that the document isn't removed. */
  readonly where: Filter<Document>
  readonly living: Filter<Document>
}

/**
 * The writes that a call makes, to be predicted: the first one that matches counts, as in the call itself. A string: the reason why it makes none.
 * @internal
 */
export async function writesOf(
  { documents, terms, inForce, heldBackMs, where, living }: WriteParts,
  id: unknown,
  call: OwnerCall,
): Promise<readonly Write[] | string> {
  switch (call.action) {
    case 'wake':
      return [wakeWrite(await inForce(), living)]
    case 'set-state':
      return [[living, stateSet(terms, call.state)]]
    case 'answer': {
      const how = { heldBackMs: await heldBackMs() }
      const seen = await answerWrite(documents, await inForce(), id, newAnswer(call.answer), how, where)
      return 'refusal' in seen ? seen.refusal.kind : [seen.write]
    }
    case 'unpark': {
      const { by, force } = call
      const found = force === true ? await leaseFieldsOf(documents, id, {}) : undefined
      const freeing = found && hasToken(found) ? [freeingWrite(terms, found['lockedBy'], by, where)] : []
      return [unparkWrite(terms, by, where), ...freeing]
    }
  }
}
