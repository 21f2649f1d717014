import { compare, type Fields, isNumber, isObject, isSame, typeOf, type Value } from './order.js'

/** What an expression may name beside the fields of its document. */
export interface Scope {
  readonly root: Fields
  readonly now: Date
  readonly variables?: Fields
}

/** What the server answers with where an expression can't be computed. */
export class EvaluationError extends Error {
  override readonly name = 'EvaluationError'
}

type Operator = (operand: Value, scope: Scope) => Value

/** An expression of the server's, for the operators that the lock protocol uses; any other one is an error of the model's. */
export function evaluate(expression: Value, scope: Scope): Value {
  if (typeof expression === 'string' && expression.startsWith('$')) return variable(expression, scope)
  if (Array.isArray(expression)) return expression.map((item) => evaluate(item, scope) ?? null)
  if (!isObject(expression)) return expression
  const keys = Object.keys(expression)
  if (keys.length === 1 && keys[0]!.startsWith('$')) {
    const operator = OPERATORS[keys[0]!]
    if (!operator) throw new Error(`expected an operator that the evaluator knows, got ${keys[0]}`)
    return operator(expression[keys[0]!], scope)
  }
  const result: Fields = {}
  for (const key of keys) {
    const value = evaluate(expression[key], scope)
    if (value !== undefined) result[key] = value
  }
  return result
}

export const isTrue = (value: Value): boolean =>
  !(value === undefined || value === null || value === false || (isNumber(value) && Number(value) === 0))

function variable(name: string, { root, now, variables = {} }: Scope): Value {
  if (!name.startsWith('$$')) return valueAt(root, name.slice(1).split('.'))
  const [first = '', ...path] = name.slice(2).split('.')
  if (first === 'NOW') return now
  if (first === 'ROOT') return valueAt(root, path)
  if (first === 'REMOVE') return undefined
  if (!(first in variables)) throw new Error(`expected a variable that was defined, got $$${first}`)
  return valueAt(variables[first], path)
}

/** The value at a path; of an array those of its elements that have one. */
export function valueAt(value: Value, path: readonly string[]): Value {
  const [field, ...rest] = path
  if (field === undefined) return value
  if (Array.isArray(value)) {
    return value.filter(isObject).flatMap((item) => {
      const found = valueAt(item, path)
      return found === undefined ? [] : [found]
    })
  }
  return isObject(value) && Object.hasOwn(value, field) ? valueAt(value[field], rest) : undefined
}

const all = (operands: Value, scope: Scope): Value[] =>
  (Array.isArray(operands) ? operands : [operands]).map((operand) => evaluate(operand, scope))

const comparison =
  (holds: (difference: number) => boolean): Operator =>
  (operands, scope) => {
    const [a, b] = all(operands, scope)
    return holds(compare(a, b))
  }

const isMissing = (value: Value): boolean => value === undefined || value === null

/** Of several operands, or of the elements of a single one that is an array; null and missing don't count. */
const extreme =
  (sign: 1 | -1): Operator =>
  (operands, scope) => {
    const values = all(operands, scope)
    const [only] = values
    const candidates = values.length === 1 && Array.isArray(only) ? only : values
    const present = candidates.filter((value) => !isMissing(value))
    return present.reduce((best, value) => (sign * compare(value, best) > 0 ? value : best), present[0]) ?? null
  }

function number(value: Value, operator: string): number {
  if (!isNumber(value)) throw new EvaluationError(`${operator} only supports numeric types, not ${typeOf(value)}`)
  return Number(value)
}

function add(operands: Value, scope: Scope): Value {
  const values = all(operands, scope)
  if (values.some(isMissing)) return null
  const sum = values.reduce<number>(
    (total, value) => total + (value instanceof Date ? value.getTime() : number(value, '$add')),
    0,
  )
  return values.some((value) => value instanceof Date) ? date(sum) : sum
}

function subtract(operands: Value, scope: Scope): Value {
  const [a, b] = all(operands, scope)
  if (isMissing(a) || isMissing(b)) return null
  if (!(a instanceof Date)) return number(a, '$subtract') - number(b, '$subtract')
  return b instanceof Date ? a.getTime() - b.getTime() : date(a.getTime() - number(b, '$subtract'))
}

const date = (ms: number): Date => new Date(Math.trunc(ms))

const INT_LIMIT = 2 ** 31
const LONG_LIMIT = 2 ** 63

function toInteger(value: Value, limit: number): Value {
  if (isMissing(value)) return null
  if (value instanceof Date && limit === LONG_LIMIT) return value.getTime()
  if (typeof value === 'boolean') return Number(value)
  if (typeof value === 'string' && /^[+-]?\d+$/.test(value)) return toInteger(Number(value), limit)
  if (!isNumber(value)) throw new EvaluationError(`unsupported conversion from ${typeOf(value)}`)
  const integer = Math.trunc(Number(value))
  if (!(integer >= -limit && integer < limit)) throw new EvaluationError('conversion would overflow the target type')
  return integer
}

function convert(operand: Value, scope: Scope): Value {
  const { input, to, onError, onNull } = operand as Fields
  const limit = to === 'long' ? LONG_LIMIT : INT_LIMIT
  const value = evaluate(input, scope)
  if (isMissing(value)) return evaluate(onNull ?? null, scope)
  try {
    return toInteger(value, limit)
  } catch (error) {
    if (onError === undefined) throw error
    return evaluate(onError, scope)
  }
}

function mergeObjects(operands: Value, scope: Scope): Value {
  const merged: Fields = {}
  for (const value of all(operands, scope)) {
    if (isMissing(value)) continue
    if (!isObject(value)) throw new EvaluationError(`$mergeObjects requires objects, got ${typeOf(value)}`)
    Object.assign(merged, value)
  }
  return merged
}

function withVariables(scope: Scope, more: Fields): Scope {
  return { ...scope, variables: { ...scope.variables, ...more } }
}

function list(value: Value, operator: string): Value[] {
  if (!Array.isArray(value)) throw new EvaluationError(`${operator} requires an array, got ${typeOf(value)}`)
  return value
}

function slice(operands: Value, scope: Scope): Value {
  const [input, count] = all(operands, scope)
  if (isMissing(input) || isMissing(count)) return null
  const items = list(input, '$slice')
  const n = number(count, '$slice')
  return n < 0 ? items.slice(n) : items.slice(0, n)
}

function filter(operand: Value, scope: Scope): Value {
  const { input, as, cond } = operand as { input: Value; as: string; cond: Value }
  const items = evaluate(input, scope)
  if (isMissing(items)) return null
  return list(items, '$filter').filter((item) => isTrue(evaluate(cond, withVariables(scope, { [as]: item }))))
}

function arrayElemAt(operands: Value, scope: Scope): Value {
  const [items, at] = all(operands, scope)
  if (isMissing(items) || isMissing(at)) return null
  return list(items, '$arrayElemAt').at(number(at, '$arrayElemAt'))
}

const OPERATORS: Readonly<Record<string, Operator>> = {
  $literal: (operand) => operand,
  $eq: comparison((difference) => difference === 0),
  $ne: comparison((difference) => difference !== 0),
  $lt: comparison((difference) => difference < 0),
  $lte: comparison((difference) => difference <= 0),
  $gt: comparison((difference) => difference > 0),
  $gte: comparison((difference) => difference >= 0),
  $and: (operands, scope) => (operands as Value[]).every((operand) => isTrue(evaluate(operand, scope))),
  $or: (operands, scope) => (operands as Value[]).some((operand) => isTrue(evaluate(operand, scope))),
  $not: (operand, scope) => !isTrue(all(operand, scope)[0]),
  $cond: (operands, scope) => {
    const [condition, yes, no] = operands as Value[]
    return evaluate(isTrue(evaluate(condition, scope)) ? yes : no, scope)
  },
  $ifNull: (operands, scope) => {
    const values = all(operands, scope)
    return values.find((value) => !isMissing(value)) ?? values.at(-1)
  },
  $in: (operands, scope) => {
    const [value, items] = all(operands, scope)
    return list(items, '$in').some((item) => isSame(item, value))
  },
  $type: (operand, scope) => typeOf(evaluate(operand, scope)),
  $isNumber: (operand, scope) => isNumber(evaluate(operand, scope)),
  $isArray: (operand, scope) => Array.isArray(all(operand, scope)[0]),
  $max: extreme(1),
  $min: extreme(-1),
  $add: add,
  $subtract: subtract,
  $multiply: (operands, scope) => {
    const values = all(operands, scope)
    return values.some(isMissing) ? null : values.reduce<number>((n, value) => n * number(value, '$multiply'), 1)
  },
  $toLong: (operand, scope) => toInteger(evaluate(operand, scope), LONG_LIMIT),
  $toInt: (operand, scope) => toInteger(evaluate(operand, scope), INT_LIMIT),
  $convert: convert,
  $let: (operand, scope) => {
    const { vars, in: result } = operand as { vars: Fields; in: Value }
    const values = Object.entries(vars).map(([name, value]) => [name, evaluate(value, scope)])
    return evaluate(result, withVariables(scope, Object.fromEntries(values) as Fields))
  },
  $mergeObjects: mergeObjects,
  $size: (operand, scope) => list(evaluate(operand, scope), '$size').length,
  $last: (operand, scope) => {
    const items = evaluate(operand, scope)
    return isMissing(items) ? null : list(items, '$last').at(-1)
  },
  $slice: slice,
  $concatArrays: (operands, scope) => {
    const values = all(operands, scope)
    return values.some(isMissing) ? null : values.flatMap((value) => list(value, '$concatArrays'))
  },
  $filter: filter,
  $objectToArray: (operand, scope) => {
    const value = evaluate(operand, scope)
    if (isMissing(value)) return null
    if (!isObject(value)) throw new EvaluationError(`$objectToArray requires an object, got ${typeOf(value)}`)
    return Object.entries(value).map(([k, v]) => ({ k, v }))
  },
  $arrayToObject: (operand, scope) => {
    const items = evaluate(operand, scope)
    if (isMissing(items)) return null
    return Object.fromEntries(
      list(items, '$arrayToObject').map((item) => [(item as Fields)['k'], (item as Fields)['v']]),
    )
  },
  $arrayElemAt: arrayElemAt,
  $indexOfArray: (operands, scope) => {
    const [items, value] = all(operands, scope)
    return isMissing(items) ? null : list(items, '$indexOfArray').findIndex((item) => isSame(item, value))
  },
}
