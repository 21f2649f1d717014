import type { Collection, Document, Filter } from 'mongodb'
import { ID_INDEX } from './constants.js'
import { AS_IT_STANDS } from './read-each.js'
import { isDefiniteRefusal } from './write-error.js'

/** A document that the server refuses to write for its own sake: its size, the owner's validator, a unique index, a type. */
export interface Refused {
  readonly id: unknown
  readonly error: Error
}

export interface WrittenAround {
  readonly refused: Refused[]
  /** Left for the next time, as too many refused. */
  readonly untried: unknown[]
}

/**
 * Culprits that are looked for in one go: each costs a few commands, slow ones where it is large, and what was written
 * meanwhile waits for them.
 */
const MOST_CULPRITS = 8

/**
 * Writes documents in one command; when it is refused for a document's own sake, all but the culprits are written.
 *
 * A command that is refused has written those before the culprit. So what is left to write is read back, in the order in
 * which the server goes, and the first of that is tried alone; where it isn't the culprit the rest is halved.
 * @param write conditional, so that what a refused command has already written is not written again
 * @param leftOf those of the given documents that `write` would still match, in the order in which the server writes
 * @throws what they throw for any other reason
 */
export async function writeAround(
  ids: readonly unknown[],
  write: (ids: readonly unknown[]) => Promise<void>,
  leftOf: (ids: readonly unknown[]) => Promise<readonly unknown[]>,
): Promise<WrittenAround> {
  const refused: Refused[] = []
  const attempt = async (group: readonly unknown[]): Promise<boolean> => {
    try {
      await write(group)
      return true
    } catch (error) {
      if (!isDefiniteRefusal(error)) throw error
      if (group.length === 1) refused.push({ id: group[0], error })
      return false
    }
  }
  const groups: (readonly unknown[])[] = [ids]
  while (groups.length > 0 && refused.length < MOST_CULPRITS) {
    const group = groups.pop()!
    if ((await attempt(group)) || group.length === 1) continue
    const [suspect, ...rest] = await leftOf(group)
    const wasGuessed = suspect === undefined || !(await attempt([suspect]))
    if (wasGuessed) groups.push(rest)
    else groups.push(rest.slice(Math.ceil(rest.length / 2)), rest.slice(0, Math.ceil(rest.length / 2)))
    while (groups.at(-1)?.length === 0) groups.pop()
  }
  return { refused, untried: groups.flat() }
}

/** The documents that match, in the order of `_id`: that of a write with a hint on `_id`. */
export async function idsOf(
  collection: Collection,
  filter: Filter<Document>,
  limits: { maxTimeMS?: number } = {},
): Promise<unknown[]> {
  const found = await collection
    .find(filter, { projection: { _id: 1 }, hint: ID_INDEX, ...limits, ...AS_IT_STANDS })
    .toArray()
  return found.map((document) => document['_id'] as unknown)
}
