import { BSON, type Document } from 'mongodb'
import { didYouMean } from '../../options/index.js'

/** The operators of a filter that people may give: each reads one document, in a time that is linear in its size. */
const OPERATORS = [
  ...['$and', '$or', '$nor', '$not', '$eq', '$ne', '$gt', '$gte', '$lt', '$lte', '$in', '$nin', '$exists', '$type'],
  ...['$regex', '$options', '$mod', '$all', '$elemMatch', '$size'],
  ...['$bitsAllClear', '$bitsAllSet', '$bitsAnyClear', '$bitsAnySet'],
  ...['$geoWithin', '$geoIntersects', '$geometry', '$box', '$polygon', '$center', '$centerSphere', '$expr'],
]
/** Those of an expression, below `$expr`: no JavaScript, no loops over lists, nothing random. */
const EXPRESSION_OPERATORS = [
  ...['$and', '$or', '$not', '$eq', '$ne', '$gt', '$gte', '$lt', '$lte', '$cmp', '$in', '$cond', '$ifNull', '$type'],
  ...['$add', '$subtract', '$multiply', '$divide', '$mod', '$abs', '$ceil', '$floor', '$round', '$trunc'],
  ...['$size', '$isArray', '$arrayElemAt', '$first', '$last', '$concat', '$toLower', '$toUpper', '$strLenCP'],
  ...['$substrCP', '$indexOfCP', '$dateAdd', '$dateSubtract', '$dateDiff', '$dateTrunc', '$year', '$month'],
  ...['$dayOfMonth', '$dayOfWeek', '$hour', '$minute', '$toDate', '$toString', '$toInt', '$toLong', '$toDouble'],
  ...['$toObjectId', '$convert', '$literal'],
]
/** The fields of a DBRef: a path may end with one of these. */
const DBREF_FIELDS = ['$ref', '$id', '$db']

/** The most levels of a filter, characters of a name in it, and bytes as MongoDB receives it: 40,000 ObjectIds in a list. */
const MOST_LEVELS = 20
const LONGEST_NAME = 1_000
const MOST_BYTES = 1_000_000

/**
 * The reason why a filter isn't used that a person gave, and that can be stored; undefined if it is used. It is judged as the server would receive it, because an object may have a
 * `toBSON`. Every operator has to be a known one: a server with JavaScript would otherwise run what is in `$where` and `$function`.
 */
export function whyNoFilter(filter: Document): string | undefined {
  let bytes: Uint8Array
  try {
    bytes = BSON.serialize(filter, { ignoreUndefined: false })
  } catch (error) {
    return (error as Error).message
  }
  if (bytes.length > MOST_BYTES) return `there are ${bytes.length} bytes, more than ${MOST_BYTES}`
  return problemIn(BSON.deserialize(bytes, { promoteValues: false, bsonRegExp: true }), OPERATORS, 1)
}

function problemIn(value: unknown, known: readonly string[], level: number): string | undefined {
  if (typeof value !== 'object' || value === null || '_bsontype' in value) return undefined
  if (level > MOST_LEVELS) return `operators and fields are nested more than ${MOST_LEVELS} levels deep`
  for (const [name, inner] of Object.entries(value)) {
    const problem =
      (Array.isArray(value) ? undefined : problemOfName(name, known)) ?? problemIn(inner, below(name, known), level + 1)
    if (problem !== undefined) return problem
  }
  return undefined
}

const below = (name: string, known: readonly string[]): readonly string[] =>
  name === '$expr' ? EXPRESSION_OPERATORS : known

function problemOfName(name: string, known: readonly string[]): string | undefined {
  const [first = '', ...path] = name.slice(0, LONGEST_NAME).split('.')
  if (first.startsWith('$') && !known.includes(first) && !DBREF_FIELDS.includes(first))
    return `'${first}' isn't among the operators that are allowed${didYouMean(first, known)}: ${known.join(', ')}`
  const isOdd = name.length > LONGEST_NAME || path.some((part) => part.startsWith('$') && !DBREF_FIELDS.includes(part))
  return isOdd ? `'${[first, ...path].join('.')}' is no path of fields` : undefined
}
