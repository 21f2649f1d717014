import { expect, jest, test } from '@jest/globals'
import { sleep } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { Fleet, MOST_FAILURES } from './fleet.js'
import { refuseUnhandledRejections } from './unhandled.js'

jest.setTimeout(240_000)

const database = useDatabase()
refuseUnhandledRejections()

test('a network that swallows everything for 15 s, with the settings that users have: no lease passes, no step runs again', async () => {
  const proxy = await TcpProxy.start(database.uri)
  const fleet = await Fleet.start(database, proxy, { lockTimeoutMs: 30_000 })
  try {
    fleet.startLoad()
    await fleet.works(50)
    proxy.blackhole()
    await sleep(15_000)
    const failures = await fleet.failuresUntilBack(() => proxy.passNew())
    await fleet.works(50)
    await fleet.drain()
    const { documents, ...wrong } = await fleet.account()
    expect(wrong).toEqual({ lost: [], redone: [], overlapping: [], repeated: [], untrue: [] })
    expect(documents).toBeGreaterThan(100)
    expect(Math.max(...fleet.logLines())).toBeLessThanOrEqual(12)
    expect(failures).toBeLessThanOrEqual(MOST_FAILURES)
  } finally {
    proxy.pass()
    await fleet.stop()
    await proxy.stop()
  }
})
