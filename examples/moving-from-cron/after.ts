/** The same work as before.ts, as a lifecycle. What docs/guides/moving-from-cron-services.md ends with. */
import { Injectable } from '@nestjs/common'
import { lifecycleOf } from 'phaselock'
import { WebHost } from './web-host.js'

interface Website {
  _id: string
  state: 'Running' | 'Deleted'
}

export const website = lifecycleOf<Website>().define({
  name: 'website',
  collection: 'Website',
  phases: {
    Creating: { next: ['Created'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  rules: [{ when: 'Deleted', from: ['Creating', 'Created'], moveTo: 'Deleting' }],
  lockTimeout: '30s', // that of the old service, to the second
  legacyWriters: true, // as long as one of the old pods may be running
})

@Injectable()
export class WebsiteHandlers {
  constructor(private readonly host: WebHost) {}

  @website.OnPhase('Creating')
  async creating(site: typeof website.$doc, step: typeof website.$step.Creating) {
    const certificate = await this.host.ensureCertificate(site._id)
    if (!certificate.ready) return step.wait('the certificate is not ready')
    await this.host.createSite(site._id)
    return step.moveTo('Created')
  }

  @website.OnPhase('Deleting')
  async deleting(site: typeof website.$doc, step: typeof website.$step.Deleting) {
    await this.host.removeSite(site._id)
    await this.host.removeCertificate(site._id)
    return step.moveTo('Deleted')
  }
}
