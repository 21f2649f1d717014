import { afterEach, describe, expect, test } from '@jest/globals'
import type { MongoClient } from 'mongodb'
import { silentLogger } from '../../src/index.js'
import { ClockSteps, type Rate, ServerClock, setLimit } from '../../src/lock/index.js'
import { LimitLeases } from '../../src/phases/engine/limits/limit-leases.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { waiterOf } from '../support/waiters.js'
import { clientAt, ManualClock } from './fixture.js'

const FLAPS = 10

describe("the rate of a limit, when the server's clock steps", () => {
  let client: MongoClient
  let proxy: TcpProxy
  afterEach(async () => {
    await client.close()
    await proxy.stop()
  })
  const database = useDatabase()

  /** A replica that would begin as many documents as it may. */
  async function replica(limit: string, rate: Rate) {
    if (limit === 'api') await setLimit(database.db, limit, { rate })
    proxy = await TcpProxy.start(database.uri)
    client = await clientAt(proxy.uri)
    const clock = new ManualClock()
    const serverClock = new ServerClock(clock, new ClockSteps(clock, 60_000, () => undefined))
    const slots = new LimitLeases({
      ...{ db: client.db(database.db.databaseName), identity: 'a~1', clock, serverClock, logger: silentLogger },
      leaseMs: () => 30_000,
    })
    const phase = { limits: [{ limit, slots: 1, ...(limit === 'k' && { key: { of: 'k', rate } }) }] } as never
    let aheadMs = 0
    const look = () => serverClock.saw(new Date(Date.now() + aheadMs), clock.monotonicMs())
    look()
    return {
      look,
      step(ms: number) {
        aheadMs += ms
        proxy.stepClock(ms)
      },
      async begin(): Promise<number> {
        const count = await slots.take(phase, 100, waiterOf(slots, 'it'))
        if (count > 0) slots.release(phase, count)
        return count
      },
    }
  }

  test.each<[string, string, boolean]>([
    ['api', 'that no look has found', false],
    ['api', "that isn't confirmed", true],
    ['k', 'that no look has found', false],
    ['k', "that isn't confirmed", true],
  ])('%s: a forward step %s adds nothing, also when it is put right', async (limit, _when, isSeen) => {
    const { step, look, begin } = await replica(limit, { starts: 600, perMs: 3_600_000 }) // one in 6 s, 60 at once
    let began = 0
    while (began < 60) began += await begin()
    for (let i = 0; i < FLAPS; i += 1) {
      step(600_000)
      if (isSeen) look()
      expect(await begin()).toBe(0)
      step(-600_000)
      look()
      began += await begin()
    }
    expect(began).toBeLessThan(60 + FLAPS) // what the test's own time has added
  })

  test('small steps that are undone add nothing twice', async () => {
    const { step, begin } = await replica('api', { starts: 900, perMs: 3_600_000 }) // one in 4 s, 90 at once
    let began = await begin()
    expect(began).toBe(90)
    for (let i = 0; i < 2 * FLAPS; i += 1) {
      step(4_000)
      began += await begin()
      step(-4_000)
      began += await begin()
    }
    expect(began).toBeLessThan(90 + FLAPS) // one of a step, and what the test's own time has added
  })

  test('after a step back it goes on from now', async () => {
    const { step, look, begin } = await replica('api', { starts: 36_000, perMs: 3_600_000 }) // ten in 1 s
    while ((await begin()) > 0);
    step(-3_600_000)
    look()
    await begin()
    const from = Date.now()
    let began = 0
    while (began < 3) began += await begin()
    expect(Date.now() - from).toBeLessThan(30_000) // and not in an hour
  })
})
