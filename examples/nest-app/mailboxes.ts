import { setTimeout as sleep } from 'node:timers/promises'
import { Injectable } from '@nestjs/common'
import { type BoundLifecycleOf, InjectLifecycle } from 'phaselock/nest'
import { mailbox } from './mailbox.js'

/** What the rest of the app does with mailboxes; a controller would call it. */
@Injectable()
export class Mailboxes {
  constructor(@InjectLifecycle(mailbox) private readonly mailboxes: BoundLifecycleOf<typeof mailbox>) {}

  async create(name: string): Promise<void> {
    await this.mailboxes.insert({ _id: name, phase: 'Creating' })
  }

  async remove(name: string): Promise<void> {
    await this.mailboxes.setState(name, 'Deleted')
  }

  async describe(name: string): Promise<string> {
    const doc = await this.mailboxes.find(name)
    return doc ? `${name}: ${doc.phase}, ${doc.address}` : `${name}: gone`
  }

  /** Waits until a mailbox is in a phase, half a minute at most. */
  async until(name: string, phase: string): Promise<void> {
    for (let tries = 0; tries < 300; tries += 1) {
      const doc = await this.mailboxes.find(name)
      if (doc?.phase === phase) return
      await sleep(100)
    }
    throw new Error(`expected mailbox ${name} to be ${phase} within 30 s`)
  }
}
