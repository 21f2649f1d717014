import { distinctName } from '../kit/index.js'

const DATABASE_PREFIX = 'gw_'
/** MongoDB accepts fewer than 64 bytes. */
const DATABASE_LENGTH = 63

/**
 * The name of a gateway's own database: `gw_<id>` if the id, as a string, is legal there, else a legal slug of its beginning and a
 * hash. Distinct ids have distinct names, even ignoring case (MongoDB refuses names that differ only by case):
 * `a` -> `gw_a`, `A` -> `gw_a-<16 digits>`, the ObjectId 0123... -> `gw_0123...`, the string '0123...' -> `gw_0123...-<16 digits>`.
 */
export function databaseNameFor(gatewayId: unknown): string {
  const room = DATABASE_LENGTH - DATABASE_PREFIX.length
  const asItIs = /^[a-z0-9_-]+$/
  return `${DATABASE_PREFIX}${distinctName(gatewayId, (text) => asItIs.test(text) && text.length <= room, room)}`
}
