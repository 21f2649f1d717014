import { createHash } from 'node:crypto'
import type { Document } from 'mongodb'
import { isParked } from '../../lock/index.js'
import type { LifecycleModel } from '../model/model.js'

const LONGEST_TEXT = 200

/** The trouble of a parked document, or of one whose last step failed: documents with the same cause are counted together. */
export function troubleOf(
  document: Document,
  { settings }: LifecycleModel,
): { cause: string; text: string } | undefined {
  const { error } = Object(document[settings.progress]) as Document
  const { name, message, cause } = Object(error) as Document
  if (typeof message !== 'string' && !isParked(document)) return undefined
  const said = typeof message === 'string' ? `${typeof name === 'string' ? name : 'Error'}: ${message}` : 'no reason'
  const text = said
    .slice(0, 1_000)
    .replace(/'[^']*'|"[^"]*"/g, "'...'")
    .replace(/\d+/g, '#')
    .slice(0, LONGEST_TEXT)
  const own = typeof cause === 'string' && /^[0-9a-f]{12}$/.test(cause) ? cause : undefined
  return { cause: own ?? createHash('sha256').update(text).digest('hex').slice(0, 12), text }
}
