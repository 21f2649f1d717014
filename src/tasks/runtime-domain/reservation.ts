import type { Document } from 'mongodb'
import type { Region } from '../../kubernetes/index.js'
import type { Step } from '../../phases/index.js'
import { idText, isDuplicateKey } from '../kit/index.js'
import { namesOf, type Placement, type RuntimeDomain, reservedFor, wantedHost } from './documents.js'
import { InvalidHostName, parseHostName } from './host-name.js'
import { certificateNameFor, ingressNameFor, needsCertificate } from './manifests.js'
import { type Doc, type DomainParts, type Ended, holderOf } from './parts.js'

/** True if the domain has reserved the name that its owner wants now. */
export function isReservedAsWanted(doc: Doc): boolean {
  try {
    return reservedFor(doc) === parseHostName(wantedHost(doc))
  } catch {
    return false
  }
}

/**
 * Reserves the wanted host name, in addition to those it already has. It keeps those until none of their objects is left, so that no other
 * domain gets a name that is still served here. The same write records the planned placement: either all of it takes effect, or none.
 */
export async function reserve(
  parts: DomainParts,
  doc: Doc,
  step: Step<'Created' | 'Stopping' | 'Deleting', RuntimeDomain>,
): Ended<'Deleting'> {
  const { store, gateways, regions } = parts
  if (await gateways?.isOrphan(doc)) return step.moveTo('Deleting')
  if (doc.gatewayId == null && !regions) return step.park('expected a gatewayId: whose domain is it?')
  let host: string
  try {
    host = parseHostName(wantedHost(doc))
  } catch (error) {
    if (error instanceof InvalidHostName) return step.park(error.message)
    throw error
  }
  const names = [host, ...namesOf(doc).filter((name) => name !== host)]
  const set: { reservedHost: string | string[]; placed?: Placement } = {
    reservedHost: names.length === 1 ? host : names,
  }
  if (regions) {
    const asked = doc.region ?? doc.placed?.region ?? (await gateways?.instanceOf(doc))?.region
    if (doc.placed && asked !== doc.placed.region) {
      return step.park(
        `expected the region to stay ${doc.placed.region}, where the domain is, got ${asked}: delete it and create it again there`,
      )
    }
    set.placed = placementOf(await regions.of(asked), doc, host)
  }
  try {
    await holderOf(parts, doc, step).set(set as Document)
  } catch (error) {
    if (!isDuplicateKey(error)) throw error
    const owner = await store.domains.findOne({ reservedHost: host })
    if (!owner) return step.wait(`host name '${host}' to be free`, { on: 'hostName' })
    const whose = `RuntimeDomain ${idText(owner['_id'])} of the gateway ${idText(owner['gatewayId'])}`
    return step.park(`host name '${host}' is reserved by ${whose}`)
  }
  // Passed again: the next step of a chain sees the fields set by outcomes, not those that a handler wrote separately.
  return step.again({ step: set.placed?.certificate ? 'certificate' : set.placed ? 'ingress' : 'route', set })
}

/** Places the domain. Once placed it stays in its namespace, even if the region's rules change. */
function placementOf(region: Region, doc: Doc, host: string): Placement {
  const { placed } = doc
  const certificate = needsCertificate(host, region.gateway) ? certificateNameFor(doc._id, host) : null
  const before = placed ? [placed.certificate, ...placed.leftover] : []
  return {
    region: region.name,
    namespace: placed?.namespace ?? region.namespaceFor(doc),
    ingress: placed?.ingress ?? ingressNameFor(doc._id),
    certificate,
    leftover: [...new Set(before)].filter((name) => name !== null && name !== certificate) as string[],
  }
}
