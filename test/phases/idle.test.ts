import { describe, expect, test } from '@jest/globals'
import type { MongoClient } from 'mongodb'
import { lifecycleOf, Replica, type RunnableLifecycle } from '../../src/index.js'
import { systemClock } from '../../src/time/index.js'
import { clientAt } from '../lock/fixture.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { ShiftedClock } from '../support/thing.js'

const TEN = Array.from({ length: 10 }, (_, i) => `kind${i}`)

const lifecycleNamed = (name: string): RunnableLifecycle =>
  lifecycleOf<{ _id: string; state?: 'Deleted' }>()
    .define({
      name,
      collection: name,
      phases: {
        Creating: { next: ['Created'] },
        Created: { rest: true },
        Deleting: { next: ['Deleted'] },
        Deleted: { final: true },
      },
      rules: [{ when: 'Deleted', from: ['Created'], moveTo: 'Deleting' }],
    })
    .handle({
      Creating: async (_doc, step) => step.moveTo('Created'),
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })

const NO_LOOK = new Set(['hello', 'endSessions', 'ping', 'getMore'])

async function commandsOf(client: MongoClient, run: () => Promise<unknown>): Promise<string[]> {
  const names: string[] = []
  const note = ({ commandName }: { commandName: string }) => void (NO_LOOK.has(commandName) || names.push(commandName))
  client.on('commandStarted', note)
  await run()
  client.off('commandStarted', note)
  return names
}

describe('an idle replica of ten lifecycles', () => {
  const database = useDatabase()

  test('sends one command a tick, also in the tick that asks what is only asked once a minute, with sleeping documents or without', async () => {
    const proxy = await TcpProxy.start(database.uri)
    const client = await clientAt(proxy.uri, { monitorCommands: true })
    const clock = new ShiftedClock()
    const timePasses = (ms: number) => {
      proxy.stepClock(ms)
      clock.advance(ms)
    }
    const db = client.db(database.db.databaseName)
    const replica = new Replica({ db, lifecycles: TEN.map(lifecycleNamed), clock })
    try {
      await replica.tick()
      const tick = () => commandsOf(client, () => replica.tick())
      expect(await tick()).toEqual(['aggregate'])
      const inAnHour = new Date(systemClock.now().getTime() + 3_600_000)
      for (const name of TEN)
        await db
          .collection(name)
          .insertMany(Array.from({ length: 50 }, () => ({ phase: 'Creating', lockedAt: inAnHour })))
      await replica.tick()
      // Two minutes. After a pause of 5 s a look may be asked twice (Tick).
      const more: string[] = []
      for (let seconds = 0; seconds < 130; seconds += 2) {
        timePasses(2_000)
        const [look, ...others] = await tick()
        expect(look).toBe('aggregate')
        more.push(...others)
      }
      // Once a minute somebody says that the lifecycles are looked after.
      expect(more).toEqual(['update', 'update'])
    } finally {
      await replica.stop()
      await client.close()
      await proxy.stop()
    }
  })
})
