import { onCluster } from '../../kubernetes/index.js'
import type { Handler } from '../../phases/index.js'
import { namesOf, type RuntimeDomain } from './documents.js'
import { type DomainParts, type Site, siteOf } from './parts.js'
import { removeIngress } from './removals.js'
import { deleteRoutes } from './route.js'

/** Stopping: no longer served. It keeps its name and its certificate, so that it can start again immediately. */
export function stopping(parts: DomainParts): Handler<'Stopped', RuntimeDomain> {
  return onCluster<'Stopped', RuntimeDomain, Site | undefined>(
    (doc, step) => siteOf(parts, doc, step),
    async (doc, step, site) => {
      await deleteRoutes(parts.store, namesOf(doc), doc, step)
      const remaining = site && (await removeIngress(site))
      return remaining === undefined ? step.moveTo('Stopped') : step.wait(remaining, { on: 'removal' })
    },
  )
}
