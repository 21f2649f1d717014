import type { Document } from 'mongodb'

/** The fields of a document that {@link shownFields} looks at, as a projection. */
export const shownProjection = (progress: string): Document => ({
  ...{ phase: 1, state: 1, lockedAt: 1, lockedBy: 1 },
  ...{ [`${progress}.step`]: 1, [`${progress}.attempts`]: 1 },
})

/** The state of a document, for people who ask what was done to it: fields that it doesn't have are left out. */
export function shownFields(document: Document, progress: string): Document {
  const { phase, state, lockedAt, lockedBy } = document
  const { step, attempts } = (document[progress] ?? {}) as Document
  const all = { phase, state, lockedAt, lockedBy, step, attempts }
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value != null))
}
