import type { Document } from 'mongodb'
import type { LifecycleSettings } from '../../definition/settings.js'
import { RESERVED_FIELDS } from '../../outcome.js'

/**
 * What is read of a document for its handlers, where the lifecycle names it; undefined: all of it. The type of a handler's
 * document (`ReadDocument`) says the same.
 */
export function readProjection({ reads, progress }: LifecycleSettings): Document | undefined {
  return reads && Object.fromEntries([...RESERVED_FIELDS, progress, ...reads].map((field) => [field, 1]))
}
