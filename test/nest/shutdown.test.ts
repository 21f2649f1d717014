import { describe, expect, jest, test } from '@jest/globals'
import {
  type INestApplicationContext,
  Inject,
  Injectable,
  Module,
  type OnApplicationShutdown,
  type OnModuleDestroy,
} from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import { type Db } from 'mongodb'
import { PhaselockModule } from '../../src/nest/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { keepingLogger, mailbox } from './sample.js'

const database = useDatabase()

/** What the app does and in which order. */
const events: string[] = []
let mayEnd: () => void = () => {}

/** A resource that steps need, beside the handlers. PhaselockModule is the last import of the root, so it is shut down first. */
@Injectable()
class Files implements OnModuleDestroy, OnApplicationShutdown {
  onModuleDestroy() {
    events.push('files flushed')
  }
  onApplicationShutdown() {
    events.push('files closed')
  }
}

@Injectable()
class SlowHandlers {
  constructor(@Inject('DB') private readonly db: Db) {}

  @mailbox.OnPhase('Creating')
  async creating(doc: typeof mailbox.$doc, step: typeof mailbox.$step.Creating) {
    events.push('step begins')
    await new Promise<void>((resolve) => {
      mayEnd = resolve
    })
    await this.db.collection('Audit').insertOne({ of: doc._id })
    events.push('step ends')
    return step.moveTo('Created')
  }

  @mailbox.OnPhase('Deleting')
  async deleting(_doc: typeof mailbox.$doc, step: typeof mailbox.$step.Deleting) {
    return step.moveTo('Deleted')
  }
}

async function boot(): Promise<INestApplicationContext> {
  events.length = 0
  @Module({
    imports: [PhaselockModule.forFeature([mailbox])],
    providers: [Files, SlowHandlers, { provide: 'DB', useValue: database.db }],
  })
  class MailboxModule {}
  const root = PhaselockModule.forRoot({
    uri: database.uri,
    logger: keepingLogger(),
    onTransition: ({ to }) => void events.push(`recorded ${to}`),
  })
  @Module({ imports: [ScheduleModule.forRoot(), MailboxModule, root] })
  class AppModule {}
  return NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false })
}

async function stepUnderWay() {
  await database.db.collection<{ _id: string; phase: string }>('Mailbox').insertOne({ _id: 'ann', phase: 'Creating' })
  await eventually(() => events.includes('step begins'))
}

async function finished() {
  expect(events).toEqual(['step begins', 'closing', 'step ends', 'recorded Created', 'files flushed', 'files closed'])
  const doc = await database.db.collection<{ _id: string }>('Mailbox').findOne({ _id: 'ann' })
  expect(doc).toMatchObject({ phase: 'Created' })
  expect(doc).not.toHaveProperty('lockedBy')
}

describe('shutdown', () => {
  test('app.close() lets the running step end and records it before anything of the app is gone', async () => {
    const app = await boot()
    await stepUnderWay()
    events.push('closing')
    const closed = app.close()
    mayEnd()
    await closed
    await finished()
  })

  test('enableShutdownHooks() does the same at a signal', async () => {
    const kill = jest.spyOn(process, 'kill').mockImplementation(() => true)
    try {
      const app = await boot()
      app.enableShutdownHooks(['SIGUSR2'])
      await stepUnderWay()
      events.push('closing')
      process.emit('SIGUSR2', 'SIGUSR2')
      mayEnd()
      await eventually(() => kill.mock.calls.length > 0)
      await finished()
    } finally {
      kill.mockRestore()
    }
  })

  test('an app that was never used stops at once', async () => {
    const app = await boot()
    await app.close()
    expect(events).toEqual(['files flushed', 'files closed'])
  })
})
