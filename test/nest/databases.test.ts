import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { Injectable, Module } from '@nestjs/common'
import { ScheduleModule } from '@nestjs/schedule'
import { Test, type TestingModule } from '@nestjs/testing'
import { lifecycleOf, MissingIndexes, OverlappingLifecycles, Replica } from '../../src/index.js'
import {
  type BoundLifecycleOf,
  getReplicaToken,
  InjectLifecycle,
  InjectReplica,
  InvalidHandlers,
  InvalidModuleOptions,
  PhaselockModule,
  type PhaselockModuleOptions,
} from '../../src/nest/index.js'
import { eventually, type TestDatabase, testDatabase, useDatabase } from '../support/database.js'
import { Accounts, keepingLogger, MailboxModule, mailbox } from './sample.js'

const database = useDatabase()
let other: TestDatabase
let app: TestingModule | undefined

beforeEach(async () => {
  other = await testDatabase()
})

afterEach(async () => {
  await app?.close()
  app = undefined
  await other.drop()
})

const audit = lifecycleOf<{ _id: string; seen?: boolean }>().define({
  name: 'audit',
  collection: 'Audit',
  phases: { Reading: { next: ['Read'] }, Read: { rest: true } },
})

@Injectable()
class AuditHandlers {
  constructor(@InjectLifecycle(audit) readonly audits: BoundLifecycleOf<typeof audit>) {}

  @audit.OnPhase('Reading')
  async reading(_doc: typeof audit.$doc, step: typeof audit.$step.Reading) {
    return step.moveTo('Read', { set: { seen: true } })
  }
}

/** The module whose lifecycle lives in another database of the same server. */
function auditModule(name: string) {
  @Injectable()
  class AuditHealth {
    constructor(@InjectReplica(name) readonly replica: Replica) {}
  }
  @Module({
    imports: [PhaselockModule.forFeature([audit], { database: name })],
    providers: [AuditHandlers, AuditHealth],
  })
  class AuditModule {}
  return { AuditModule, AuditHealth }
}

async function boot(imports: object[], options: PhaselockModuleOptions = {}) {
  const logger = keepingLogger()
  const root = PhaselockModule.forRoot({ uri: database.uri, name: 'pod-1', logger, ...options })
  const built = Test.createTestingModule({ imports: [ScheduleModule.forRoot(), root, ...(imports as never[])] })
  app = await built.compile()
  await app.init()
  return app
}

describe('lifecycles in two databases of one app', () => {
  test.each<[string, () => PhaselockModuleOptions]>([
    ['opened by the module', () => ({})],
    [
      "over the app's own client",
      () => ({ uri: undefined, client: database.client, database: database.db.databaseName }),
    ],
    ["over the app's own database handle", () => ({ uri: undefined, db: database.db })],
  ])('%s: each is worked on in its own, by its own replica, with one tick', async (_name, options) => {
    const { AuditModule, AuditHealth } = auditModule(other.db.databaseName)
    const context = await boot([MailboxModule, AuditModule], options())
    const [{ mailboxes }, { audits }] = [context.get(Accounts), context.get(AuditHandlers)]
    await mailboxes.insert({ _id: 'ann' })
    await audits.insert({ _id: 'ann' })
    await eventually(async () => (await mailboxes.find('ann'))?.phase === 'Created')
    await eventually(async () => (await audits.find('ann'))?.phase === 'Read')
    const names = async ({ db }: TestDatabase) => (await db.listCollections().toArray()).map(({ name }) => name).sort()
    const ours = ['phaselock.doorbell', 'phaselock.lifecycles', 'phaselock.replicas']
    await eventually(async () => expect(await names(database)).toEqual(['Mailbox', ...ours]))
    await eventually(async () => expect(await names(other)).toEqual(['Audit', ...ours]))
    const { replica } = context.get(AuditHealth)
    expect(replica).toBe(context.get(getReplicaToken(other.db.databaseName)))
    expect(replica).not.toBe(context.get(Replica))
    await eventually(() => expect(replica.status()).toMatchObject({ notReady: [], held: 0 }))
    await context.close()
    expect(replica.status().notReady).toEqual(['stopping'])
  })

  test("naming the module's own database is naming none", async () => {
    const { AuditModule, AuditHealth } = auditModule(database.db.databaseName)
    const context = await boot([MailboxModule, AuditModule], { tick: false })
    expect(context.get(AuditHealth).replica).toBe(context.get(Replica))
  })

  test('one lifecycle in two of them is refused', async () => {
    const elsewhere = PhaselockModule.forFeature([mailbox], { database: 'elsewhere' })
    const failed = await boot([MailboxModule, elsewhere]).catch((error) => error)
    expect(failed).toBeInstanceOf(InvalidHandlers)
    expect(failed.message).toMatch(/'mail-box' is registered for two databases .*define another for the second/)
  })

  test('an unknown option of forFeature is refused', () => {
    const wrong = () => PhaselockModule.forFeature([mailbox], { databse: 'x' } as never)
    expect(wrong).toThrow(InvalidModuleOptions)
    expect(wrong).toThrow(/forFeature: unknown option 'databse' \(did you mean 'database'\?\); known: database/)
  })
})

describe('what a start refuses', () => {
  test('two lifecycles with a phase in common on one collection', async () => {
    const twin = lifecycleOf<{ _id: string }>().define({
      name: 'twin',
      collection: 'Mailbox',
      phases: { Creating: { next: ['Twinned'] }, Twinned: { rest: true } },
    })
    const lifecycles = [twin.handle({ Creating: async (_doc, step) => step.moveTo('Twinned') })]
    await expect(boot([MailboxModule], { lifecycles })).rejects.toBeInstanceOf(OverlappingLifecycles)
  })

  test("missing indexes with indexes: 'check'", async () => {
    await expect(boot([MailboxModule], { indexes: 'check' })).rejects.toBeInstanceOf(MissingIndexes)
    expect(await database.db.listCollections().toArray()).toEqual([])
    await expect(boot([MailboxModule], { indexes: 'ceck' as never })).rejects.toThrow(
      "indexes: expected one of create, check, got 'ceck'",
    )
  })
})
