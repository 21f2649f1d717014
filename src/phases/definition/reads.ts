import type { Document } from 'mongodb'
import { RESERVED_FIELDS, type ReservedField } from '../outcome.js'
import type { LifecycleSettings } from './settings.js'

/** What `reads` may name: top-level fields of a document; of a union, the fields of each. */
export type Reads<Doc> = readonly (Doc extends unknown ? keyof Doc & string : never)[]

/**
 * What handlers find in a document: all of it, or the fields that `reads` names and, where `Doc` declares them, those that are
 * fetched whatever it names (`RESERVED_FIELDS`).
 */
export type ReadDocument<Doc, Named extends readonly string[] | undefined> = Named extends readonly (infer Field)[]
  ? PickOf<Doc, Field | ReservedField>
  : Doc

/** The projection with which documents are read for handlers; undefined: all of them. `ReadDocument` is the matching type. */
export function readProjection({ reads, progress }: LifecycleSettings): Document | undefined {
  return reads && Object.fromEntries([...RESERVED_FIELDS, progress, ...reads].map((field) => [field, 1]))
}

type PickOf<Doc, Field> = Doc extends unknown ? Pick<Doc, keyof Doc & Field> : never
