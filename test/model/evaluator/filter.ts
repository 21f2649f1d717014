import { evaluate, isTrue, valueAt } from './expression.js'
import { compare, type Fields, isObject, isSame, typeOf, type Value } from './order.js'

/** Whether a document matches a filter, for the operators that the lock protocol uses. */
export function matches(filter: Fields, document: Fields, now: Date): boolean {
  return Object.entries(filter).every(([key, condition]) => {
    if (key === '$expr') return isTrue(evaluate(condition, { root: document, now }))
    if (key === '$or') return (condition as Fields[]).some((one) => matches(one, document, now))
    if (key === '$and') return (condition as Fields[]).every((one) => matches(one, document, now))
    if (key.startsWith('$')) throw new Error(`expected a condition that the evaluator knows, got ${key}`)
    const path = key.split('.')
    const { $exists, ...others } = isOperators(condition) ? condition : { $eq: condition }
    if ($exists !== undefined && isThere(document, path) !== Boolean($exists)) return false
    return Object.keys(others).length === 0 || holds(others, valueAt(document, path))
  })
}

/** In an array any of its elements may have it; what an expression reads there is a list. */
function isThere(value: Value, [first, ...rest]: readonly string[]): boolean {
  if (first === undefined) return value !== undefined
  if (!isObject(value)) return false
  const inner = value[first]
  if (rest.length === 0 || !Array.isArray(inner)) return isThere(inner, rest)
  return inner.some((one) => isThere(one, rest))
}

const isOperators = (condition: Value): condition is Fields =>
  isObject(condition) && Object.keys(condition).some((key) => key.startsWith('$'))

function holds(condition: Value, value: Value): boolean {
  if (!isOperators(condition)) return equals(condition, value)
  return Object.entries(condition).every(([operator, operand]) => {
    const test = CONDITIONS[operator]
    if (!test) throw new Error(`expected a condition that the evaluator knows, got ${operator}`)
    return test(operand, value)
  })
}

/** A value matches as a whole, or by one of its elements; null matches what is missing. */
const equals = (wanted: Value, value: Value): boolean =>
  eachOf(value).some((one) => isSame(one, wanted) || (wanted === null && one === undefined))

const eachOf = (value: Value): readonly Value[] => (Array.isArray(value) ? [value, ...value] : [value])

/** An order is between values of one type only. */
const range =
  (isWithin: (difference: number) => boolean) =>
  (bound: Value, value: Value): boolean =>
    eachOf(value).some((one) => typeOf(one) === typeOf(bound) && isWithin(compare(one, bound)))

const CONDITIONS: Readonly<Record<string, (operand: Value, value: Value) => boolean>> = {
  $eq: equals,
  $ne: (operand, value) => !equals(operand, value),
  $in: (operand, value) => (operand as Value[]).some((one) => equals(one, value)),
  $nin: (operand, value) => !(operand as Value[]).some((one) => equals(one, value)),
  $lt: range((difference) => difference < 0),
  $lte: range((difference) => difference <= 0),
  $gt: range((difference) => difference > 0),
  $gte: range((difference) => difference >= 0),
  $not: (operand, value) => !holds(operand, value),
  $type: (operand, value) =>
    operand === 'array' ? Array.isArray(value) : eachOf(value).some((one) => typeOf(one) === operand),
}
