import { Injectable } from '@nestjs/common'
import { MailServer } from './mail-server.js'
import { mailbox } from './mailbox.js'

/** A provider like any other: what it needs is injected. Each step may run again after a crash. */
@Injectable()
export class MailboxHandlers {
  constructor(private readonly server: MailServer) {}

  @mailbox.OnPhase('Creating')
  async creating(doc: typeof mailbox.$doc, step: typeof mailbox.$step.Creating) {
    if (!doc.address) return step.again({ step: 'make the box', set: { address: `${doc._id}@example.org` } })
    await this.server.createBox(doc.address)
    return (await this.server.isReady(doc.address))
      ? step.moveTo('Created')
      : step.wait('the mail server is not done yet')
  }

  @mailbox.OnPhase('Deleting')
  async deleting(doc: typeof mailbox.$doc, step: typeof mailbox.$step.Deleting) {
    if (doc.address) await this.server.removeBox(doc.address)
    return step.moveTo('Deleted')
  }
}
