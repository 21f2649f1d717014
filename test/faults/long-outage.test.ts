import { expect, test } from '@jest/globals'
import { sleep } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { Fleet } from './fleet.js'
import { refuseUnhandledRejections } from './unhandled.js'

const database = useDatabase()
refuseUnhandledRejections()

test('a network that swallows everything for 20 s, with the settings that users have: no lease passes, no step runs again', async () => {
  const proxy = await TcpProxy.start(database.uri)
  const fleet = await Fleet.start(database, proxy, { lockTimeoutMs: 30_000 })
  try {
    fleet.startLoad()
    await fleet.works(50)
    proxy.blackhole()
    await sleep(20_000)
    const backMs = await fleet.msUntilBack(() => proxy.passNew())
    await fleet.works(50)
    await fleet.drain(20_000)
    const { documents, ...wrong } = await fleet.account()
    expect(wrong).toEqual({ lost: [], redone: [], overlapping: [], repeated: [] })
    expect(documents).toBeGreaterThan(500)
    expect(Math.max(...fleet.logLines())).toBeLessThanOrEqual(6)
    expect(backMs).toBeLessThan(2_000)
  } finally {
    proxy.pass()
    await fleet.stop()
    await proxy.stop()
  }
}, 90_000)
