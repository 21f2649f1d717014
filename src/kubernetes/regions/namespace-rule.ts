import { createHash } from 'node:crypto'
import { BSON } from 'mongodb'
import { idKey } from '../../lock/index.js'
import { GATEWAY_ID } from './region-document.js'

const LABEL = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/
const LABEL_LENGTH = 63
const HASH_LENGTH = 24
const LOOKS_LIKE_A_HASH = /^([0-9a-f]{24}|x[0-9a-f]{24})$/

/**
 * The namespace of what belongs to a gatewayId: the rule with the id in place of `{gatewayId}`. An id that can't be part of
 * a name (or could be taken for another id's) is replaced by a hash of it. Distinct ids have distinct namespaces.
 */
export function namespaceBy(rule: string, id: unknown): string {
  if (!rule.includes(GATEWAY_ID)) return rule
  const room = LABEL_LENGTH - (rule.length - GATEWAY_ID.length)
  return rule.replace(GATEWAY_ID, () => labelOf(id, room))
}

function labelOf(id: unknown, room: number): string {
  if (id instanceof BSON.ObjectId && room >= HASH_LENGTH) return id.toHexString()
  if (typeof id === 'string' && id.length <= room && LABEL.test(id) && !LOOKS_LIKE_A_HASH.test(id)) return id
  const hash = createHash('sha256').update(idKey(id)).digest('hex').slice(0, HASH_LENGTH)
  return `x${hash}`.slice(0, Math.max(room, 12))
}
