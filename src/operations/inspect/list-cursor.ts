import { createHash } from 'node:crypto'
import { BSON } from 'mongodb'
import { idSpelt, idsMeantBy } from '../system/document-id.js'
import { UsageError } from '../system/errors.js'

/** The place of a document in a list: the fields that the list is ordered by. */
export interface Key {
  readonly phase: unknown
  readonly lockedAt: unknown
  readonly updatedAt: unknown
}

/** Where a page of a list begins. */
export interface Position {
  readonly lifecycle: string
  /** Absent: at the lifecycle's first document. */
  readonly key?: Key | undefined
  /** After this document of those with that key. Absent: before the first of them; `past`: after the last. */
  readonly at?: { readonly id: unknown } | 'past' | undefined
}

/** A digest of what a list lists: its cursors mean nothing in another one. */
export const listDigest = (list: unknown): string =>
  createHash('sha256')
    .update(BSON.EJSON.stringify(list, { relaxed: false }))
    .digest('hex')
    .slice(0, 8)

/**
 * A position as text for people to pass on: `3f2a91bc/order/Packing/2026-11-26T10:00:00.000Z/-/order-17`. It is bound to its list by a digest.
 */
export function cursorText(digest: string, { lifecycle, key, at }: Position): string {
  const place = key ? [key.phase, key.lockedAt, key.updatedAt].map(valueText) : []
  const document = at === undefined ? [] : [at === 'past' ? PAST : idSpelt(at.id)]
  return [digest, lifecycle, ...place, ...document].map(escaped).join('/')
}

/** @throws UsageError for the cursor of another list, or text that is none */
export function positionFrom(digest: string, cursor: string): Position {
  const parts = cursor.split('/')
  try {
    const [of, lifecycle = '', ...place] = parts.map((part) => decodeURIComponent(part))
    if (of !== digest && /^[\da-f]{8}$/.test(of ?? ''))
      throw new UsageError(
        'after (--after): expected a cursor of this list, got one of a list with other filters or in another order',
        undefined,
        'repeat the list with the filters that it was printed with',
      )
    if (of !== digest || place.length === 1 || place.length === 2 || place.length > 4) throw new TypeError('parts')
    const [phase = NONE, lockedAt = NONE, updatedAt = NONE, id] = place
    const key = { phase: valueFrom(phase), lockedAt: valueFrom(lockedAt), updatedAt: valueFrom(updatedAt) }
    const at = id === undefined ? undefined : id === PAST ? PAST : { id: idsMeantBy(id)[0] }
    return place.length === 0 ? { lifecycle } : { lifecycle, key, at }
  } catch (error) {
    if (error instanceof UsageError) throw error
    throw new UsageError(`after (--after): expected a cursor as a list prints it, got '${cursor.slice(0, 200)}'`)
  }
}

/** A phase as most are called; no Extended JSON begins with a capital. */
const PHASE = /^[A-Z][\w-]*$/
const NONE = '-'
const PAST = 'past'

const valueText = (value: unknown): string => {
  if (value == null) return NONE
  if (typeof value === 'string' && PHASE.test(value)) return value
  if (value instanceof Date && !Number.isNaN(value.getTime())) return value.toISOString()
  return BSON.EJSON.stringify(value, { relaxed: false })
}

function valueFrom(text: string): unknown {
  if (text === NONE) return null
  if (PHASE.test(text)) return text
  const date = new Date(text)
  if (/^[-+\d]/.test(text) && !Number.isNaN(date.getTime())) return date
  return BSON.EJSON.parse(text, { relaxed: false })
}

/** Without what a shell or a URL would take for something else; a colon stays, for dates. */
const escaped = (text: string): string =>
  encodeURIComponent(text)
    .replace(/[!'()*~]/g, (one) => `%${one.charCodeAt(0).toString(16)}`)
    .replaceAll('%3A', ':')
