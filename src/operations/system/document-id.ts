import { BSON } from 'mongodb'
import { canBeId, idText, whyNotStorable } from '../../lock/index.js'
import { typed } from '../../options/index.js'
import { UsageError } from './errors.js'
import { fromExtendedJson } from './extended-json.js'

export { idText } from '../../lock/index.js'

const { EJSON, Long, ObjectId, UUID } = BSON

/**
 * The `_id`s that a string may mean, the likelier ones first. `66f0...` is an ObjectId or a string, `42` a number or a string, and `null`
 * itself or a string. `ObjectId("66f0...")`, `{"$oid": "66f0..."}` and `"42"` (Extended JSON) mean exactly what they say.
 * @throws UsageError for text that begins like Extended JSON but isn't
 */
export function idsMeantBy(given: string): unknown[] {
  const text = given.trim()
  if (text === '') throw invalid("expected a document's _id, got an empty string", given)
  const call = /^(?:new )?(ObjectId|UUID)\(["']?([^"']*)["']?\)$/.exec(text)
  if (call) return [constructed(call[1]!, call[2]!, text)]
  if (/^[{"[]/.test(text)) return [extendedJson(text)]
  const ids: unknown[] = /^(null|true|false)$/.test(text) ? [JSON.parse(text)] : []
  if (/^[0-9a-f]{24}$/i.test(text)) ids.push(new ObjectId(text))
  if (UUID.isValid(text) && text.includes('-')) ids.push(new UUID(text))
  if (/^-?\d{1,19}$/.test(text) && BigInt.asIntN(64, BigInt(text)) === BigInt(text))
    ids.push(Number.isSafeInteger(Number(text)) ? Number(text) : Long.fromString(text))
  else if (/^-?\d+\.\d+$/.test(text)) ids.push(Number(text))
  return [...ids, given]
}

/** An `_id` in a command to be pasted into a shell. */
export const idTyped = (id: unknown): string => typed(idText(id))

/** An `_id` as text that means only this one. */
export function idSpelt(id: unknown): string {
  const text = EJSON.stringify(id, { relaxed: true })
  return idsMeantBy(text).length === 1 ? text : EJSON.stringify(id, { relaxed: false })
}

function constructed(type: string, value: string, text: string): unknown {
  const Type = type === 'UUID' ? UUID : ObjectId
  if (Type.isValid(value)) return new Type(value)
  throw invalid(
    `expected an _id such as ${type === 'UUID' ? 'UUID("...")' : 'ObjectId("<24 hex digits>")'}, got ${text}`,
    text,
  )
}

function extendedJson(text: string): unknown {
  const id = parsed(text)
  // An invalid date would mean the document whose `_id` is 1970-01-01.
  const problem = whyNotStorable({ _id: id })
  if (problem !== undefined) throw invalid(`expected an _id that a document can have, got ${text}: ${problem}`, text)
  if (!canBeId(id))
    throw invalid(
      `expected an _id that a document can have, got ${text}: no array, regular expression or operator`,
      text,
    )
  return id
}

function parsed(text: string): unknown {
  try {
    return fromExtendedJson(text, { useBigInt64: true }) // otherwise a Long loses its last digits
  } catch (error) {
    throw invalid(
      `expected an _id as plain text, ObjectId or Extended JSON such as '{"$oid": "..."}', got ${text} (${(error as Error).message})`,
      text,
    )
  }
}

const invalid = (problem: string, id: string) => new UsageError(problem, { reason: 'invalidId', id })
