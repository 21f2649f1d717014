import { Inject, Injectable, Module } from '@nestjs/common'
import { type Logger, lifecycleOf } from '../../src/index.js'
import { type BoundLifecycleOf, InjectLifecycle, PhaselockModule } from '../../src/nest/index.js'

export interface Mailbox {
  _id: string
  state?: 'Running' | 'Deleted'
  address?: string
}

export const mailbox = lifecycleOf<Mailbox>().define({
  name: 'mail-box',
  collection: 'Mailbox',
  phases: {
    Creating: { next: ['Created'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
})

/** Something of the app's own that the handlers need. */
@Injectable()
export class Domains {
  readonly name: string = 'example.org'
}

@Injectable()
export class MailboxHandlers {
  constructor(
    private readonly domains: Domains,
    @InjectLifecycle(mailbox) readonly mailboxes: BoundLifecycleOf<typeof mailbox>,
  ) {}

  @mailbox.OnPhase('Creating')
  async creating(doc: typeof mailbox.$doc, step: typeof mailbox.$step.Creating) {
    if (!doc.address) return step.again({ step: 'address', set: { address: `${doc._id}@${this.domains.name}` } })
    return step.moveTo('Created')
  }

  @mailbox.OnPhase('Deleting')
  async deleting(_doc: typeof mailbox.$doc, step: typeof mailbox.$step.Deleting) {
    return step.moveTo('Deleted')
  }
}

/** A service that owns documents and handles none. */
@Injectable()
export class Accounts {
  constructor(@InjectLifecycle(mailbox) readonly mailboxes: BoundLifecycleOf<typeof mailbox>) {}
}

@Module({
  imports: [PhaselockModule.forFeature([mailbox])],
  providers: [Domains, MailboxHandlers, Accounts],
  exports: [Accounts],
})
export class MailboxModule {}

/** Another module of the app that uses the same lifecycle. */
@Injectable()
export class Invoices {
  constructor(
    @InjectLifecycle(mailbox) readonly mailboxes: BoundLifecycleOf<typeof mailbox>,
    @Inject(Accounts) readonly accounts: Accounts,
  ) {}
}

@Module({ imports: [PhaselockModule.forFeature([mailbox]), MailboxModule], providers: [Invoices] })
export class InvoiceModule {}

export interface LogLine {
  level: keyof Logger
  message: string
  fields: object | undefined
}

/** A logger that keeps its lines. */
export function keepingLogger(): Logger & { lines: LogLine[] } {
  const lines: LogLine[] = []
  const keep = (level: keyof Logger) => (message: string, fields?: object) =>
    void lines.push({ level, message, fields })
  return { lines, debug: keep('debug'), info: keep('info'), warn: keep('warn'), error: keep('error') }
}
