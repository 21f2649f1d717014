import { expect, jest, test } from '@jest/globals'
import { eventually, useDatabase } from '../support/database.js'
import { useLocalDatabase } from '../support/database-local.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { Fleet, MOST_FAILURES } from './fleet.js'
import { refuseUnhandledRejections } from './unhandled.js'

jest.setTimeout(240_000)

const elsewhere = useDatabase()
const local = useLocalDatabase()
refuseUnhandledRejections()

test('a server that is killed with kill -9 under load, twice, and started again on its port', async () => {
  const connection = await local().connect({ lockTimeout: '3s' })
  const proxy = await TcpProxy.start(connection.uri)
  const direct = { ...connection, drop: () => connection.close() }
  const fleet = await Fleet.start(direct, proxy, { ledger: elsewhere })
  try {
    fleet.startLoad()
    for (let kill = 0; kill < 2; kill += 1) {
      await fleet.works(50)
      const { engine, port } = await local().pids()
      process.kill(engine, 'SIGKILL')
      const isBack = () =>
        eventually(
          async () => {
            expect((await local().pids()).engine).not.toBe(engine)
            await connection.db.command({ ping: 1 })
          },
          { timeoutMs: 60_000 },
        )
      const failures = await fleet.failuresUntilBack(isBack)
      expect((await local().pids()).port).toBe(port)
      expect(failures).toBeLessThanOrEqual(MOST_FAILURES)
    }
    await fleet.works(50)
    await fleet.drain()
    const { repeated, documents, ...wrong } = await fleet.account()
    expect(wrong).toEqual({ lost: [], redone: [], overlapping: [], untrue: [] })
    expect(Math.max(...fleet.logLines())).toBeLessThanOrEqual(12)
  } finally {
    await fleet.stop()
    await proxy.stop()
  }
})
