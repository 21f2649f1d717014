import { describe, expect, test } from '@jest/globals'
import { Injectable, Scope } from '@nestjs/common'
import { Test } from '@nestjs/testing'
import { Replica } from '../../src/index.js'
import {
  getLifecycleToken,
  InvalidHandlers,
  ModuleConfiguredTwice,
  ModuleNotConfigured,
  PhaselockModule,
} from '../../src/nest/index.js'
import { useDatabase } from '../support/database.js'
import { Domains, keepingLogger, MailboxHandlers, mailbox } from './sample.js'

const database = useDatabase()
const root = () => PhaselockModule.forRoot({ db: database.db, tick: false, logger: keepingLogger() })

/** What starting an app of these modules and providers fails with. */
async function failure(imports: object[], providers: object[]): Promise<Error> {
  const started = Test.createTestingModule({ imports: imports as never[], providers: providers as never[] })
    .compile()
    .then((module) => module.init())
  return started.then(
    async (module) => {
      await module.close()
      throw new Error('expected it not to start')
    },
    (error: Error) => error,
  )
}

@Injectable()
class Creators {
  @mailbox.OnPhase('Creating')
  async create(_doc: typeof mailbox.$doc, step: typeof mailbox.$step.Creating) {
    return step.moveTo('Created')
  }
}

describe('at start', () => {
  test('a working phase without a handler is an error that says what to add', async () => {
    const failed = await failure([root(), PhaselockModule.forFeature([mailbox])], [Creators])
    expect(failed).toBeInstanceOf(InvalidHandlers)
    expect(failed.message).toContain(
      "lifecycle 'mail-box': working phase 'Deleting' has no handler; add a method with @mailBox.OnPhase('Deleting') to a provider",
    )
    expect(failed.message).not.toContain("'Creating' has no handler")
  })

  test('a method of a lifecycle that is not registered is an error with the line to add', async () => {
    const failed = await failure([root()], [Creators])
    expect(failed).toBeInstanceOf(InvalidHandlers)
    expect(failed.message).toContain(
      "Creators.create handles 'Creating' of lifecycle 'mail-box', which this app doesn't have; add PhaselockModule.forFeature([mailBox]) to the imports of RootTestModule",
    )
  })

  test('two handlers of one phase are an error that names both', async () => {
    const failed = await failure([root(), PhaselockModule.forFeature([mailbox])], [Creators, Domains, MailboxHandlers])
    expect(failed).toBeInstanceOf(InvalidHandlers)
    expect(failed.message).toMatch(
      /phase 'Creating' has two handlers, Creators\.create \(RootTestModule\) and MailboxHandlers\.creating \(RootTestModule\); keep one/,
    )
  })

  test('a class that Nest makes anew for each request is refused', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class PerRequest extends Creators {}
    const failed = await failure([root(), PhaselockModule.forFeature([mailbox])], [PerRequest])
    expect(failed).toBeInstanceOf(InvalidHandlers)
    expect(failed.message).toContain('PerRequest handles phases but is not a singleton')
  })

  test('a method for a lifecycle that came with its handlers is refused', async () => {
    const handled = () =>
      mailbox.handle({
        Creating: async (_doc, step) => step.moveTo('Created'),
        Deleting: async (_doc, step) => step.moveTo('Deleted'),
      })
    const bound = handled()
    const failed = await failure([root(), PhaselockModule.forFeature([bound])], [Creators])
    expect(failed.message).toContain(
      "Creators.create handles 'Creating' of lifecycle 'mail-box', which came with its handlers",
    )
    const again = await failure([root(), PhaselockModule.forFeature([bound, mailbox, bound, handled()])], [])
    expect(again.message).toContain("lifecycle 'mail-box' was given handlers twice")
  })

  test('two lifecycles of one name, and something that is none, are refused', async () => {
    const other = { name: mailbox.name, model: { ...mailbox.model } }
    const failed = await failure([root(), PhaselockModule.forFeature([mailbox, other, undefined as never])], [])
    expect(failed).toBeInstanceOf(InvalidHandlers)
    expect(failed.message).toContain("two different lifecycles are called 'mail-box'")
    expect(failed.message).toContain('expected a lifecycle, got undefined; where two files import each other')
  })

  test('forFeature without forRoot, and forRoot twice, say so', async () => {
    const without = await failure([PhaselockModule.forFeature([mailbox])], [])
    expect(without).toBeInstanceOf(ModuleNotConfigured)
    expect(without.message).toContain('expected PhaselockModule.forRoot() or forRootAsync() in this app')
    const twice = await failure([root(), root()], [])
    expect(twice).toBeInstanceOf(ModuleConfiguredTwice)
    expect(twice.message).toContain('got it 2 times')
  })
})

describe('handlers', () => {
  test('may be inherited, overridden, and made by a factory', async () => {
    @Injectable()
    class Base extends Creators {
      @mailbox.OnPhase('Deleting')
      async remove(_doc: typeof mailbox.$doc, step: typeof mailbox.$step.Deleting) {
        return step.moveTo('Deleted')
      }
    }
    class Special extends Base {
      @mailbox.OnPhase('Creating')
      override async create(_doc: typeof mailbox.$doc, step: typeof mailbox.$step.Creating) {
        return step.moveTo('Created', { set: { address: 'special' } })
      }
    }
    const module = await Test.createTestingModule({
      imports: [root(), PhaselockModule.forFeature([mailbox])],
      providers: [
        { provide: 'special', useFactory: () => new Special() },
        { provide: 'alias', useExisting: 'special' },
      ],
    }).compile()
    const app = await module.init()
    const mailboxes = app.get(getLifecycleToken(mailbox))
    await mailboxes.insert({ _id: 'ann' })
    await app.get(Replica).runOnce()
    expect(await mailboxes.owner().find('ann')).toMatchObject({ phase: 'Created', address: 'special' })
    await app.close()
  })

  test('an app that only owns documents (tick: false) may have none; asked to run, it backs off without using attempts', async () => {
    const module = await Test.createTestingModule({
      imports: [root(), PhaselockModule.forFeature([mailbox])],
    }).compile()
    const app = await module.init()
    const mailboxes = app.get(getLifecycleToken(mailbox))
    await mailboxes.insert({ _id: 'ann' })
    await app.get(Replica).runOnce()
    const doc = await mailboxes.owner().find('ann')
    expect(doc).toMatchObject({ phase: 'Creating', progress: { attempts: 0 } })
    expect(doc?.progress.waitingFor).toContain("'Creating' of lifecycle 'mail-box' has no handler in this process")
    await app.close()
  })
})
