import { BSON, type Document } from 'mongodb'

/**
 * Parses a value from Extended JSON exactly as written. EJSON.parse alone drops the operators beside `$regex` (in `{ "$regex": "^a", "$ne":
 * "ab" }`
 * the `$ne`), and rounds whole numbers beyond 2^53, so that the text would mean another document.
 * @throws SyntaxError; RangeError for a number that no type can hold
 */
export const fromExtendedJson = (text: string, options?: BSON.EJSONOptions): unknown =>
  BSON.EJSON.parse(JSON.stringify(JSON.parse(text, asWritten as (name: string, value: unknown) => unknown)), options)

function asWritten(_name: string, value: unknown, { source = '' }: { readonly source?: string } = {}): unknown {
  return typeof value === 'number' ? exactly(value, source) : besideRegExp(value)
}

function exactly(value: number, source: string): unknown {
  const isWhole = /^-?\d+$/.test(source)
  if (Number.isSafeInteger(value) || (Number.isFinite(value) && !isWhole)) return value
  if (isWhole && BigInt.asIntN(64, BigInt(source)) === BigInt(source)) return { $numberLong: source }
  throw new RangeError(
    `expected numbers of at most 64 bits, got ${source}; others are typed as {"$numberDecimal": "${source}"}`,
  )
}

function besideRegExp(value: unknown): unknown {
  const { $regex: pattern, $options: options = '', ...others } = Object(value) as Document
  if (typeof pattern !== 'string' || typeof options !== 'string' || Object.keys(others).length === 0) return value
  return { ...others, $regex: { $regularExpression: { pattern, options } } }
}
