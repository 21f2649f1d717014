import { BSON, type Document } from 'mongodb'
import { UsageError } from '../../operations/index.js'

/**
 * A document from the command line, as JSON or Extended JSON (`{"at": {"$date": "2026-01-01T00:00:00Z"}}`).
 * @throws UsageError when it isn't a JSON object
 */
export function documentFrom(text: string): Document {
  let value: unknown
  try {
    value = BSON.EJSON.parse(text)
  } catch (error) {
    throw new UsageError(
      `expected a document as JSON, such as '{"name": "x"}', got ${text} (${(error as Error).message}); in a shell, quote it with '...'`,
    )
  }
  if (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype) return value
  throw new UsageError(`expected a document as JSON, such as '{"name": "x"}', got ${text}`)
}
