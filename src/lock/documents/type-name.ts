/** The type of a value from the database, for people: 'a string', 'an array', 'a Timestamp', 'missing'. */
export function typeName(value: unknown): string {
  if (value === undefined) return 'missing'
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'string') return 'a string'
  if (value instanceof Date) return isValid(value) ? 'a date' : 'a date outside the range of JavaScript'
  if (value instanceof RegExp) return 'a regular expression'
  if (typeof value !== 'object') return `a ${typeof value}`
  const bsonType = (value as { _bsontype?: unknown })._bsontype
  if (bsonType === undefined) return 'an object'
  if (bsonType === 'BSONRegExp') return 'a regular expression'
  return `${/^[AEIO]/.test(String(bsonType)) ? 'an' : 'a'} ${String(bsonType)}`
}

const NUMBERS: ReadonlySet<unknown> = new Set(['Long', 'Int32', 'Double', 'Decimal128'])
/** True if the server takes a value for a number. */
export const isNumber = (value: unknown): boolean =>
  typeof value === 'number' || NUMBERS.has((value as { _bsontype?: unknown } | null | undefined)?._bsontype)

/** True for a date that JavaScript has. The server's dates go further (beyond the year 275760): those are read as an Invalid Date. */
export const isValid = (date: Date): boolean => !Number.isNaN(date.getTime())
