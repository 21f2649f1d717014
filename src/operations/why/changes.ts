import type { Document } from 'mongodb'
import { idKey, isPlain } from '../../lock/index.js'

/** The fields that change, by their paths: those of `progress` singly. A field that isn't there is absent. */
export interface Changes {
  readonly before: Document
  readonly after: Document
}

/** The fields of a document that another version of it has otherwise. */
export function changesOf(before: Document, after: Document): Changes {
  const [was, is] = [fieldsOf(before), fieldsOf(after)]
  const changed = [...new Set([...was.keys(), ...is.keys()])].filter(
    (path) => was.has(path) !== is.has(path) || idKey(was.get(path)) !== idKey(is.get(path)),
  )
  const of = (fields: ReadonlyMap<string, unknown>) =>
    Object.fromEntries(changed.flatMap((path) => (fields.has(path) ? [[path, fields.get(path)]] : [])))
  return { before: of(was), after: of(is) }
}

/** The fields of a document, and of its objects one level down. */
const fieldsOf = (document: Document): ReadonlyMap<string, unknown> =>
  new Map(
    Object.entries(document).flatMap(([field, value]): (readonly [string, unknown])[] =>
      isPlain(value) && Object.keys(value).length > 0
        ? Object.entries(value).map(([name, inner]) => [`${field}.${name}`, inner] as const)
        : [[field, value] as const],
    ),
  )
