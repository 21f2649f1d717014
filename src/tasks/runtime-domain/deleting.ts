import { onCluster } from '../../kubernetes/index.js'
import type { Handler, Step } from '../../phases/index.js'
import { namesOf, type RuntimeDomain } from './documents.js'
import { type Doc, type DomainParts, type Ended, type Site, siteOf } from './parts.js'
import { certificatesOf, removeCertificates, removeIngress, removeSecrets } from './removals.js'
import { deleteRoutes } from './route.js'

/** Deleting: Ingress, then Certificates, then their Secrets, each gone before the next; then the Routes; then its names are free. */
export function deleting(parts: DomainParts): Handler<'Deleted', RuntimeDomain> {
  return onCluster<'Deleted', RuntimeDomain, Site | undefined>(
    (doc, step) => siteOf(parts, doc, step),
    async (doc, step, site) => {
      await parts.store.ensureIndexes()
      return site ? removeFrom(site, parts, doc, step) : deleted(parts, doc, step)
    },
  )
}

async function removeFrom(
  site: Site,
  parts: DomainParts,
  doc: Doc,
  step: Step<'Deleted', RuntimeDomain>,
): Ended<'Deleted'> {
  const names = certificatesOf(site)
  if (step.name === 'certificates') {
    const remaining = await removeCertificates(site, names)
    return remaining === undefined ? step.again({ step: 'secrets' }) : step.wait(remaining, { on: 'removal' })
  }
  if (step.name === 'secrets') {
    const remaining = await removeSecrets(site, names, step)
    return remaining === undefined ? deleted(parts, doc, step) : step.wait(remaining, { on: 'removal' })
  }
  const remaining = await removeIngress(site)
  if (remaining !== undefined) return step.wait(remaining, { on: 'removal' })
  return names.length > 0 ? step.again({ step: 'certificates' }) : deleted(parts, doc, step)
}

async function deleted(parts: DomainParts, doc: Doc, step: Step<'Deleted', RuntimeDomain>): Ended<'Deleted'> {
  await deleteRoutes(parts.store, namesOf(doc), doc, step)
  return step.moveTo('Deleted', { set: { reservedHost: null, placed: null } })
}
