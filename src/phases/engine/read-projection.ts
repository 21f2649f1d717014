import type { Document } from 'mongodb'
import type { LifecycleSettings } from '../definition/settings.js'

/** What the engine needs of a document, whatever its handlers read. */
const OWN_FIELDS = ['phase', 'state', 'lockedAt', 'lockedBy', 'fence', 'createdAt', 'updatedAt'] as const

/** What is read of a document for its handlers, where the lifecycle names it; undefined: all of it. */
export function readProjection({ reads, progress }: LifecycleSettings): Document | undefined {
  return reads && Object.fromEntries([...OWN_FIELDS, progress, ...reads].map((field) => [field, 1]))
}
