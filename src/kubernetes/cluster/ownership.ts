import { createHash } from 'node:crypto'
import { BSON, type Db } from 'mongodb'
import { canBeId } from '../../lock/index.js'
import type { KubernetesObject, ObjectMeta } from '../api/objects.js'

/** The field manager under which Phaselock applies objects, and the value of the label `app.kubernetes.io/managed-by`. */
export const FIELD_MANAGER = 'phaselock'

/** The labels on each object that a document owns: its lifecycle, its `_id` (or a hash of it), and who manages it. */
export const LABELS = {
  lifecycle: 'phaselock.dev/lifecycle',
  document: 'phaselock.dev/document',
  managedBy: 'app.kubernetes.io/managed-by',
} as const

/** The annotations on each object that a document owns; what labels can't hold. */
export const ANNOTATIONS = {
  /** The document's `_id` as canonical Extended JSON. */
  id: 'phaselock.dev/id',
  /** The database that the document is in. */
  database: 'phaselock.dev/database',
  /** The fence of the step that wrote the object last. */
  fence: 'phaselock.dev/fence',
} as const

/** The lifecycle whose documents own objects, and where its documents are. */
export interface OwnerLifecycle {
  /** Its name. */
  readonly name: string
  /** The collection of its documents. */
  readonly collection: string
  /** The database that they are in. */
  readonly db: Db
}

/** A document as the owner of objects. */
export class Owner {
  /** Its `_id` as canonical Extended JSON. */
  readonly id: string
  /** What each of its objects is labelled with; together with the annotations they say whose it is. */
  readonly labels: Readonly<Record<string, string>>
  /** What each of its objects is annotated with, besides the fence. */
  readonly annotations: Readonly<Record<string, string>>

  constructor({ name, db }: Pick<OwnerLifecycle, 'name' | 'db'>, id: unknown) {
    this.id = encodeId(id)
    this.labels = {
      [LABELS.lifecycle]: labelValue(name),
      [LABELS.document]: documentLabel(id),
      [LABELS.managedBy]: FIELD_MANAGER,
    }
    this.annotations = { [ANNOTATIONS.id]: this.id, [ANNOTATIONS.database]: db.databaseName }
  }

  /** Whether an object says that it is this document's: by lifecycle, `_id` and database. */
  owns({ metadata: { labels, annotations } }: { readonly metadata: ObjectMeta }): boolean {
    return (
      labels?.[LABELS.lifecycle] === this.labels[LABELS.lifecycle] &&
      annotations?.[ANNOTATIONS.id] === this.id &&
      annotations[ANNOTATIONS.database] === this.annotations[ANNOTATIONS.database]
    )
  }
}

/** The fence of the step that wrote an object last; 0 for one that was made by the controller of an object of ours. */
export function fenceOf({ metadata }: KubernetesObject): number {
  const fence = Number(metadata.annotations?.[ANNOTATIONS.fence] ?? 0)
  return Number.isSafeInteger(fence) ? fence : 0
}

/** Whose an object says it is: the label of the lifecycle, and the document's `_id`; undefined: it names no document of ours. */
export function ownerOf({
  metadata: { labels, annotations },
}: KubernetesObject): { lifecycle: string; database: string; id: unknown } | undefined {
  const lifecycle = labels?.[LABELS.lifecycle]
  const id = annotations?.[ANNOTATIONS.id]
  const database = annotations?.[ANNOTATIONS.database]
  if (lifecycle === undefined || id === undefined || database === undefined) return undefined
  try {
    const { _id } = BSON.EJSON.parse(id, { relaxed: false })
    return canBeId(_id) ? { lifecycle, database, id: _id } : undefined
  } catch {
    return undefined
  }
}

/** The value of the label `phaselock.dev/document`: the id as a string if that is a legal value, else a hash of it. */
export function documentLabel(id: unknown): string {
  const hasText = typeof id === 'string' || typeof id === 'number' || id instanceof BSON.ObjectId
  return labelValue(hasText ? String(id) : '', encodeId(id))
}

/** A string as it is if it may be a label's value, else a hash. */
export function labelValue(text: string, hashed = text): string {
  if (/^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/.test(text)) return text
  return createHash('sha256').update(hashed).digest('hex').slice(0, 40)
}

/** Wrapped in an object: a plain string isn't a document that Extended JSON could represent. */
const encodeId = (id: unknown): string => BSON.EJSON.stringify({ _id: id }, { relaxed: false })
