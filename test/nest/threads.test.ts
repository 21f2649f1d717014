import { describe, expect, test } from '@jest/globals'
import { Injectable } from '@nestjs/common'
import { ScheduleModule } from '@nestjs/schedule'
import { Test } from '@nestjs/testing'
import { ObjectId } from 'mongodb'
import { Replica, thread } from '../../src/index.js'
import { PhaselockModule } from '../../src/nest/index.js'
import { useDatabase } from '../support/database.js'
import { thing, things } from '../support/thing.js'
import { keepingLogger } from './sample.js'

const MODULE = new URL('../phases/fixtures/thread-handlers.mjs', import.meta.url)

@Injectable()
class Things {
  @thing.OnPhase('Creating')
  readonly creating = thread(MODULE, { export: 'checkpoints' })

  @thing.OnPhase('Deleting')
  async deleting(_doc: typeof thing.$doc, step: typeof thing.$step.Deleting) {
    return step.moveTo('Deleted')
  }
}

@Injectable()
class Mistaken extends Things {
  override readonly creating = thread(MODULE, { export: 'missing' })
}

describe('a Nest provider whose property is a handler in a thread', () => {
  const database = useDatabase()

  const app = (provider: new () => object, tick: boolean) =>
    Test.createTestingModule({
      imports: [
        ScheduleModule.forRoot(),
        PhaselockModule.forRoot({ db: database.db, tick, threads: 1, blockedAfter: '1s', logger: keepingLogger() }),
        PhaselockModule.forFeature([thing]),
      ],
      providers: [provider],
    }).compile()

  test('runs there, under the token of its step', async () => {
    const module = await (await app(Things, false)).init()
    const replica = module.get(Replica)
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    const document = await things(database.db).findOne({ _id: 'a' })
    expect(document).toMatchObject({ phase: 'Created', n: 2, key: expect.any(ObjectId) })
    await replica.stop()
    await module.close()
  })

  test('keeps the app from starting when its module has no such function', async () => {
    const module = await app(Mistaken, true)
    await expect(module.init()).rejects.toThrow(/lifecycle 'thing' can't work:\n.*'Creating': .*an export 'missing'/)
    await module.close()
  })
})
