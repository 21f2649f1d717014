import { createHash } from 'node:crypto'
import { BSON, type Db } from 'mongodb'
import { canBeId } from '../../lock/index.js'
import type { KubernetesObject, ObjectMeta } from '../api/objects.js'

/** The field manager under which Phaselock applies objects, and the value of the label `app.kubernetes.io/managed-by`. */
export const FIELD_MANAGER = 'phaselock'

/** The labels on each object that a document owns: its lifecycle, its `_id` (or a hash of it), and its manager. */
export const LABELS = {
  lifecycle: 'phaselock.dev/lifecycle',
  document: 'phaselock.dev/document',
  managedBy: 'app.kubernetes.io/managed-by',
} as const

/** The annotations on each object that a document owns, for values that labels can't hold. */
export const ANNOTATIONS = {
  /** The document's `_id` as canonical Extended JSON. */
  id: 'phaselock.dev/id',
  /** The database of the document. */
  database: 'phaselock.dev/database',
  /** The fence of the step that last wrote the object. */
  fence: 'phaselock.dev/fence',
} as const

/** The lifecycle whose documents own objects, and the location of its documents. */
export interface OwnerLifecycle {
  /** Its name. */
  readonly name: string
  /** The collection of its documents. */
  readonly collection: string
  /** The database of its documents. */
  readonly db: Db
}

/** A document as the owner of objects. */
export class Owner {
  /** Its `_id` as canonical Extended JSON. */
  readonly id: string
  /** The labels of each of its objects; together with the annotations they identify the owner. */
  readonly labels: Readonly<Record<string, string>>
  /** The annotations of each of its objects, besides the fence. */
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

  /** True if an object names this document as its owner: by lifecycle, `_id` and database. */
  owns({ metadata: { labels, annotations } }: { readonly metadata: ObjectMeta }): boolean {
    return (
      labels?.[LABELS.lifecycle] === this.labels[LABELS.lifecycle] &&
      annotations?.[ANNOTATIONS.id] === this.id &&
      annotations[ANNOTATIONS.database] === this.annotations[ANNOTATIONS.database]
    )
  }
}

/** The fence of the step that last wrote an object; 0 for an object created by the controller of one of ours. */
export function fenceOf({ metadata }: KubernetesObject): number {
  const fence = Number(metadata.annotations?.[ANNOTATIONS.fence] ?? 0)
  return Number.isSafeInteger(fence) ? fence : 0
}

/** The owner that an object names: the label of the lifecycle, and the document's `_id`; undefined: it names no document of ours. */
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

/** The string itself if it may be a label's value, else a hash. */
export function labelValue(text: string, hashed = text): string {
  if (/^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/.test(text)) return text
  return createHash('sha256').update(hashed).digest('hex').slice(0, 40)
}

/** Wrapped in an object, because Extended JSON can't represent a plain string as a document. */
const encodeId = (id: unknown): string => BSON.EJSON.stringify({ _id: id }, { relaxed: false })
