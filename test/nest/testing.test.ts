import { expect, test } from '@jest/globals'
import { ScheduleModule } from '@nestjs/schedule'
import { Test } from '@nestjs/testing'
import { Replica } from '../../src/index.js'
import { getLifecycleToken, PHASELOCK_OPTIONS, PhaselockModule } from '../../src/nest/index.js'
import { useDatabase } from '../support/database.js'
import { Accounts, Domains, keepingLogger, MailboxHandlers, MailboxModule, mailbox } from './sample.js'

const database = useDatabase()

/** An app as its users run it; what differs in tests is overridden. */
const appUnderTest = () =>
  Test.createTestingModule({
    imports: [
      ScheduleModule.forRoot(),
      PhaselockModule.forRoot({ uri: 'mongodb://production:27017/app' }),
      MailboxModule,
    ],
  })
    .overrideProvider(PHASELOCK_OPTIONS)
    .useValue({ db: database.db, tick: false, logger: keepingLogger() })

async function created(id: string, app: { get: (token: never) => unknown }) {
  const { mailboxes } = app.get(Accounts as never) as Accounts
  await mailboxes.insert({ _id: id })
  await (app.get(Replica as never) as Replica).runOnce()
  return mailboxes.owner().find(id)
}

test('a test overrides the options and a service that the handlers use, and drives the replica by hand', async () => {
  const app = await appUnderTest().overrideProvider(Domains).useValue({ name: 'test' }).compile()
  await app.init()
  expect(await created('ann', app)).toMatchObject({ phase: 'Created', address: 'ann@test' })
  await app.close()
})

test('it may replace the handlers by a class or by a plain object', async () => {
  class Quick extends MailboxHandlers {
    override async creating(_doc: typeof mailbox.$doc, step: typeof mailbox.$step.Creating) {
      return step.moveTo('Created', { set: { address: 'quick' } }) as never
    }
  }
  const byClass = await appUnderTest().overrideProvider(MailboxHandlers).useClass(Quick).compile()
  await byClass.init()
  expect(await created('ann', byClass)).toMatchObject({ phase: 'Created', address: 'quick' })
  await byClass.close()

  const plain = {
    creating: async (_doc: object, step: typeof mailbox.$step.Creating) => step.park('replaced'),
    deleting: async (_doc: object, step: typeof mailbox.$step.Deleting) => step.moveTo('Deleted'),
  }
  const byValue = await appUnderTest().overrideProvider(MailboxHandlers).useValue(plain).compile()
  await byValue.init()
  expect(await created('bea', byValue)).toMatchObject({
    phase: 'Creating',
    progress: { error: { message: 'replaced' } },
  })
  await byValue.close()
})

test.each([
  ['without one of its methods', { creating: async () => undefined }, 'deleting', 'undefined'],
  ['with something else in its place', { creating: async () => undefined, deleting: 'x' }, 'deleting', "'x'"],
  ['that is null', null, 'creating', 'undefined'],
])('a provider of handlers replaced by an object %s is told at start', async (_what, plain, method, got) => {
  const app = appUnderTest().overrideProvider(MailboxHandlers).useValue(plain).compile()
  const failed = await app.then((one) => one.init()).catch((error: Error) => error.message)
  expect(failed).toContain(`MailboxHandlers.${method} handles '`)
  expect(failed).toContain(
    `of lifecycle 'mail-box': expected a method, got ${got}; an object that replaces the provider`,
  )
})

/** As libraries make them: it has something under every name, so also under those of our own notes. */
const mock = (): object =>
  new Proxy(() => undefined, { get: (_, key) => (key === 'then' || String(key).startsWith('on') ? undefined : mock()) })

test('it may replace a service by a mock that has everything', async () => {
  const domains = new Proxy({}, { get: (_, key) => Reflect.get(mock(), key) })
  const app = await appUnderTest().overrideProvider(Domains).useValue(domains).compile()
  await app.init()
  await app.close()
})

test('it may replace a lifecycle that is injected, so that nothing reaches a database', async () => {
  const inserted: object[] = []
  const app = await appUnderTest()
    .overrideProvider(getLifecycleToken(mailbox))
    .useValue({ insert: async (doc: object) => void inserted.push(doc) })
    .compile()
  await app.get(Accounts).mailboxes.insert({ _id: 'ann' })
  expect(inserted).toEqual([{ _id: 'ann' }])
  await app.close()
})
