import { evaluate, type Scope } from './expression.js'
import { type Fields, isObject, type Value } from './order.js'

/** A document after an update: a pipeline of `$set`, `$unset` and `$replaceWith`, or a plain `{ $set, $unset }` of constants. */
export function updated(update: Fields | readonly Fields[], document: Fields, now: Date): Fields {
  if (!Array.isArray(update)) return plain(update as Fields, document)
  return update.reduce<Fields>((root, stage) => stageOf(stage as Fields, { root, now }), document)
}

function plain(update: Fields, document: Fields): Fields {
  let result = document
  for (const [operator, fields] of Object.entries(update)) {
    if (operator !== '$set' && operator !== '$unset')
      throw new Error(`expected an update that the evaluator knows, got ${operator}`)
    for (const [path, value] of Object.entries(fields as Fields)) {
      result = withValue(result, path.split('.'), operator === '$unset' ? undefined : value) as Fields
    }
  }
  return result
}

function stageOf(stage: Fields, scope: Scope): Fields {
  const [operator = '', operand] = Object.entries(stage)[0] ?? []
  switch (operator) {
    case '$set': {
      // All of a stage's expressions see the document as it was before it.
      let result = scope.root
      for (const [path, expression] of Object.entries(operand as Fields)) result = set(result, path, expression, scope)
      return result
    }
    case '$unset': {
      let result = scope.root
      for (const path of [operand].flat() as string[]) result = withValue(result, path.split('.'), undefined) as Fields
      return result
    }
    case '$replaceWith': {
      const replaced = evaluate(operand, scope)
      if (!isObject(replaced)) throw new Error(`expected $replaceWith to give an object, got ${String(replaced)}`)
      return { ...replaced, _id: scope.root['_id'] }
    }
    default:
      throw new Error(`expected a stage that the evaluator knows, got ${operator}`)
  }
}

/** An object that is no operator sets its fields one by one and keeps the others. */
function set(document: Fields, path: string, expression: Value, scope: Scope): Fields {
  if (isObject(expression) && !Object.keys(expression).some((key) => key.startsWith('$'))) {
    return Object.entries(expression).reduce(
      (result, [key, value]) => set(result, `${path}.${key}`, value, scope),
      document,
    )
  }
  const value = evaluate(expression, scope)
  return withValue(document, path.split('.'), value) as Fields
}

/** A path through an array goes into each of its elements; `undefined` removes. */
function withValue(target: Value, path: readonly string[], value: Value): Value {
  const [field, ...rest] = path
  if (field === undefined) return value
  if (Array.isArray(target)) return target.map((item) => withValue(item, path, value))
  const fields = isObject(target) ? target : {}
  if (value !== undefined) return { ...fields, [field]: withValue(fields[field], rest, value) }
  if (!isObject(target) || !Object.hasOwn(target, field)) return target
  if (rest.length > 0) return { ...fields, [field]: withValue(fields[field], rest, undefined) }
  const { [field]: _, ...others } = fields
  return others
}
