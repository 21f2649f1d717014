import { onCluster } from '../../kubernetes/index.js'
import type { Handler, Step } from '../../phases/index.js'
import { formerHosts, type RuntimeDomain, reservedFor } from './documents.js'
import { certificateOf, certificateRef, ingressOf, isUpToDate } from './manifests.js'
import { type Doc, type DomainParts, type Ended, holderOf, type Site, siteOf } from './parts.js'
import { removeCertificates, removeSecrets } from './removals.js'
import { isReservedAsWanted, reserve } from './reservation.js'
import { activateRoute, deleteRoutes, writeRoute } from './route.js'

type Next = 'Created' | 'Stopping' | 'Deleting'
type OneStep = Step<Next, RuntimeDomain>
/** One stage of bringing a domain up, given the reserved name and, in a region, the domain's site. */
type Stage = (parts: DomainParts, doc: Doc, step: OneStep, host: string, site: Site | undefined) => Ended<Next>

/**
 * Creating and Updating: both turn the existing state into the wanted one. The host name is reserved; its certificate issued; the Ingress
 * created, or switched over in one write; the Route written; only then are the leftovers of former names removed. A domain that changes its
 * name is therefore served under the old one until the new one works, and keeps the old one if the new name isn't available.
 */
export function bringingUp(parts: DomainParts): Handler<Next, RuntimeDomain> {
  return onCluster<Next, RuntimeDomain, Site | undefined>(
    (doc, step) => siteOf(parts, doc, step),
    async (doc, step, site) => {
      await parts.store.ensureIndexes()
      const stage = STAGES[step.name ?? '']
      const host = reservedFor(doc)
      const isPlaced = site !== undefined || !parts.regions
      // The owner may have changed the name, or the document may not be placed yet: it starts over.
      if (!stage || host === undefined || !isPlaced || !isReservedAsWanted(doc)) return reserve(parts, doc, step)
      return stage(parts, doc, step, host, site)
    },
  )
}

const certificate: Stage = async (_parts, _doc, step, host, site) => {
  const issuer = site?.region.gateway.tls.issuer
  const name = site?.placed.certificate
  // The region's TLS was turned off in the meantime.
  if (!site || !name || !issuer) return step.again()
  const made = await site.cluster.ensure(certificateOf(site.placed, { host, name, issuer, owner: site.cluster.owner }))
  // Otherwise the request would be repeated without a pause.
  if (!isUpToDate(made, host, issuer)) {
    return step.wait(
      `Certificate ${name} to be as it was asked for: something in the cluster changes its names or its issuer`,
      { on: 'certificate' },
    )
  }
  return step.again({ step: 'issued' })
}

const issued: Stage = async (_parts, doc, step, host, site) => {
  const issuer = site?.region.gateway.tls.issuer
  const name = site?.placed.certificate
  if (!site || !name || !issuer) return step.again()
  const readiness = await site.cluster.ready(certificateRef(site.placed, name))
  // It was removed, or the region has another issuer now.
  if (!readiness.object || !isUpToDate(readiness.object, host, issuer)) return step.again({ step: 'certificate' })
  if (readiness.done) return step.again({ step: 'ingress' })
  // It will be served later, or never: there is no need to wait for it.
  return doc.state === 'Stopped' ? step.moveTo('Stopping') : step.wait(readiness.text, { on: 'certificate' })
}

const ingress: Stage = async (parts, doc, step, host, site) => {
  if (!site) return step.again()
  if (doc.state === 'Stopped' || (doc.state == null && (await parts.gateways?.isAtRest(doc)))) {
    return step.moveTo('Stopping')
  }
  const service = doc.service ?? (await parts.gateways?.instanceOf(doc))?.service
  if (!service) {
    return step.park(
      'expected a service { name, port } to send requests to: the domain names none, and has no gateway with an instance that has ports',
    )
  }
  await site.cluster.ensure(ingressOf(site.placed, { host, service, gateway: site.region.gateway }))
  return doc.gatewayId == null ? served(doc, step, host) : step.again({ step: 'route' })
}

const route: Stage = async (parts, doc, step, host) => {
  await writeRoute(holderOf(parts, doc, step), host, doc)
  await activateRoute(parts.store, parts.gateways, host, doc)
  await deleteRoutes(parts.store, formerHosts(doc), doc, step)
  return served(doc, step, host)
}

function served(doc: Doc, step: OneStep, host: string): Ended<'Created'> {
  if (doc.placed && doc.placed.leftover.length > 0) return Promise.resolve(step.again({ step: 'leftover' }))
  return created(doc, step, host)
}

const leftover: Stage = async (_parts, _doc, step, _host, site) => {
  if (!site) return step.again()
  const remaining = await removeCertificates(site, site.placed.leftover)
  return remaining === undefined ? step.again({ step: 'leftover secrets' }) : step.wait(remaining, { on: 'removal' })
}

const leftoverSecrets: Stage = async (_parts, doc, step, host, site) => {
  if (!site) return step.again()
  const remaining = await removeSecrets(site, site.placed.leftover, step)
  return remaining === undefined ? created(doc, step, host) : step.wait(remaining, { on: 'removal' })
}

/** Former names are free from here on: they have no leftovers any more. */
async function created({ placed }: Doc, step: OneStep, host: string): Ended<'Created'> {
  return step.moveTo('Created', {
    set: { reservedHost: host, ...(placed && { placed: { ...placed, leftover: [] } }) },
  })
}

const STAGES: Readonly<Record<string, Stage>> = {
  certificate,
  issued,
  ingress,
  route,
  leftover,
  'leftover secrets': leftoverSecrets,
}
