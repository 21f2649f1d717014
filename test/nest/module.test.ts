import { afterEach, describe, expect, test } from '@jest/globals'
import { type INestApplicationContext, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import { type Alongside, BoundLifecycle, Replica, type RunnableLifecycle } from '../../src/index.js'
import { getLifecycleToken, PhaselockModule, type PhaselockModuleOptions } from '../../src/nest/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { Accounts, InvoiceModule, Invoices, keepingLogger, MailboxHandlers, MailboxModule, mailbox } from './sample.js'

const database = useDatabase()
let app: INestApplicationContext | undefined

afterEach(async () => {
  await app?.close()
  app = undefined
})

async function boot(root: ReturnType<typeof PhaselockModule.forRoot>, ...more: object[]) {
  @Module({ imports: [ScheduleModule.forRoot(), root, MailboxModule, ...(more as never[])] })
  class AppModule {}
  app = await NestFactory.createApplicationContext(AppModule, { logger: ['warn', 'error'], abortOnError: false })
  return app
}

const phaseOf = async (id: string) =>
  (await database.db.collection<{ _id: string; phase: string }>('Mailbox').findOne({ _id: id }))?.phase

describe('a Nest app', () => {
  test('boots with everything injected, ticks, and takes a document through its lifecycle', async () => {
    const context = await boot(PhaselockModule.forRoot({ uri: database.uri, name: 'pod-1', logger: keepingLogger() }))
    const { mailboxes } = context.get(Accounts)
    await mailboxes.insert({ _id: 'ann', phase: 'Creating' })
    await eventually(async () => (await phaseOf('ann')) === 'Created')
    const doc = await mailboxes.owner().find('ann')
    expect(doc).toMatchObject({ address: 'ann@example.org' })
    expect(doc?.progress?.endedBy).toMatch(/^pod-1~/)
    expect(await mailboxes.owner().setState('ann', 'Deleted')).toBe('done')
    await eventually(async () => (await phaseOf('ann')) === undefined)
  })

  test('runs what it is given beside each lifecycle, until it closes', async () => {
    const seen: string[] = []
    const beside: Alongside = async ({ model, signal }) => {
      seen.push(model.name)
      signal.addEventListener('abort', () => seen.push('stopped'))
    }
    await boot(PhaselockModule.forRoot({ uri: database.uri, alongside: [beside], logger: keepingLogger() }))
    await eventually(() => expect(seen).toEqual([mailbox.model.name]))
    await app?.close()
    expect(seen.at(-1)).toBe('stopped')
  })

  test('gives one and the same bound lifecycle and replica to all of its modules', async () => {
    const context = await boot(PhaselockModule.forRoot({ db: database.db, logger: keepingLogger() }), InvoiceModule)
    const { mailboxes } = context.get(Accounts)
    expect(mailboxes).toBeInstanceOf(BoundLifecycle)
    expect(context.get(Invoices).mailboxes).toBe(mailboxes)
    expect(context.get(MailboxHandlers).mailboxes).toBe(mailboxes)
    expect(context.get(getLifecycleToken(mailbox))).toBe(mailboxes)
    expect(context.get(Replica).status()).toMatchObject({ notReady: [], held: 0 })
  })

  test('takes its options from a factory, and the name from POD_NAME', async () => {
    class Config {
      readonly uri = database.uri
    }
    @Module({ providers: [Config], exports: [Config] })
    class ConfigModule {}
    const { POD_NAME } = process.env
    process.env['POD_NAME'] = 'api-7f9c-x2k'
    try {
      const context = await boot(
        PhaselockModule.forRootAsync({
          imports: [ConfigModule],
          inject: [Config],
          useFactory: async (config: Config): Promise<PhaselockModuleOptions> => ({
            uri: config.uri,
            logger: keepingLogger(),
          }),
        }),
      )
      expect(context.get(Replica).identity).toMatch(/^api-7f9c-x2k~/)
      await context.get(Accounts).mailboxes.insert({ _id: 'bea' })
      await eventually(async () => (await phaseOf('bea')) === 'Created')
    } finally {
      if (POD_NAME === undefined) delete process.env['POD_NAME']
      else process.env['POD_NAME'] = POD_NAME
    }
  })

  test('runs lifecycles that came with their handlers, from forRoot and from forFeature', async () => {
    const made = (name: string) => {
      const definition = { ...mailbox, model: { ...mailbox.model, name, collection: name } }
      return new BoundLifecycle(definition.model, {
        Creating: async (_doc, step) => step.moveTo('Created'),
        Deleting: async (_doc, step) => step.moveTo('Deleted'),
      })
    }
    const [one, two] = [made('one'), made('two')]
    const context = await boot(
      PhaselockModule.forRoot({ db: database.db, lifecycles: [one as RunnableLifecycle], logger: keepingLogger() }),
      PhaselockModule.forFeature([two]),
    )
    // The app's own, because another app of this process may have the same lifecycle.
    const own = context.get(getLifecycleToken(two))
    expect(own).not.toBe(two)
    expect(own).toMatchObject({ model: two.model, handlers: two.handlers })
    for (const lifecycle of [one, two]) {
      const id = await lifecycle.insert({})
      await eventually(async () => (await lifecycle.owner().find(id))?.['phase'] === 'Created')
    }
  })
})
