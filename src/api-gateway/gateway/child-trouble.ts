import type { Document } from 'mongodb'
import { idText } from '../../kinds/index.js'
import { isParked } from '../../lock/index.js'

/** Why a gateway waits for a child, for its `waitingFor`: "RuntimeDomain 42 is parked: host name ... is reserved by ...". */
export type ChildTrouble = string

/** The phase of a child with a lifecycle, and its latest failure. */
export function troubleOf(collection: string, child: Document): ChildTrouble {
  const name = `${collection} ${idText(child['_id'])}`
  const { progress, stoppedBecause, trouble } = child
  const message = progress?.error?.message ?? stoppedBecause ?? trouble ?? progress?.waitingFor
  const because = typeof message === 'string' ? `: ${message}` : ''
  return isParked(child) ? `${name} is parked${because}` : `${name} is in ${String(child['phase'])}${because}`
}
