import { Module } from '@nestjs/common'
import { ScheduleModule } from '@nestjs/schedule'
import { PhaselockModule } from 'phaselock/nest'
import { MailServer } from './mail-server.js'
import { mailbox } from './mailbox.js'
import { MailboxHandlers } from './mailbox-handlers.js'
import { Mailboxes } from './mailboxes.js'

@Module({
  imports: [PhaselockModule.forFeature([mailbox])],
  providers: [MailServer, MailboxHandlers, Mailboxes],
  exports: [Mailboxes],
})
export class MailboxModule {}

@Module({
  imports: [
    ScheduleModule.forRoot(),
    MailboxModule,
    PhaselockModule.forRoot({
      onTransition: ({ id, from, to, by }) => console.log(`  ${id}: ${from} -> ${to} by a ${by}`),
      observer: {
        stepEnded: ({ id, outcome, reason }) => outcome === 'wait' && console.log(`  ${id}: waits: ${reason}`),
        ruled: ({ state, to }) => console.log(`  its owner wants ${state}: it goes to ${to}`),
      },
    }),
  ],
})
export class AppModule {}
