import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { sleep } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { Fleet, MOST_FAILURES } from './fleet.js'
import { refuseUnhandledRejections } from './unhandled.js'

jest.setTimeout(240_000)

const WRITES = new Set(['update', 'findAndModify', 'delete', 'insert'])
const refusal = (code: number, codeName: string, errmsg: string): Document => ({ ok: 0, code, codeName, errmsg })

interface Outage {
  readonly begin: (proxy: TcpProxy) => void
  readonly end?: (proxy: TcpProxy) => void
  /** No lease can pass meanwhile: then no step may run again. */
  readonly keepsLeases?: true
}

/** An outage is longer than a lease, unless it keeps leases: then so much shorter that a busy machine doesn't cost one. */
const LOCK_TIMEOUT_MS = 3_000
const LONG_LOCK_TIMEOUT_MS = 20_000

const OUTAGES: [string, number, Outage][] = [
  ['refuses connections', 5_000, { begin: (proxy) => proxy.refuse() }],
  ['refuses connections for less than a lease', 1_500, { begin: (proxy) => proxy.refuse(), keepsLeases: true }],
  ['is blackholed, then goes on where it was', 5_000, { begin: (proxy) => proxy.blackhole() }],
  [
    'is blackholed, and the connections of before never come back',
    5_000,
    { begin: (proxy) => proxy.blackhole(), end: (proxy) => proxy.passNew() },
  ],
  ['is slow: 300 ms each way', 4_000, { begin: (proxy) => proxy.slow(300), keepsLeases: true }],
  [
    'is no writable primary',
    5_000,
    {
      begin: (proxy) =>
        proxy.answerAll(({ name }) =>
          WRITES.has(name)
            ? refusal(10107, 'NotWritablePrimary', 'not primary')
            : refusal(13435, 'NotPrimaryNoSecondaryOk', 'not primary and secondaryOk=false'),
        ),
    },
  ],
  [
    'is shutting down: interrupted, or told that it is',
    4_000,
    {
      begin: (proxy) =>
        proxy.answerAll(({ name }) =>
          WRITES.has(name)
            ? refusal(11600, 'InterruptedAtShutdown', 'interrupted at shutdown')
            : refusal(91, 'ShutdownInProgress', 'The server is in quiesce mode and will shut down'),
        ),
    },
  ],
  [
    'has a full disk: reads work, writes are refused',
    5_000,
    {
      begin: (proxy) =>
        proxy.answerAll(({ name }) =>
          WRITES.has(name) ? refusal(14031, 'OutOfDiskSpace', 'available disk space is below the minimum') : undefined,
        ),
    },
  ],
]

describe('a database that', () => {
  const database = useDatabase()
  refuseUnhandledRejections()
  let proxy: TcpProxy
  let fleet: Fleet | undefined

  beforeEach(async () => {
    proxy = await TcpProxy.start(database.uri)
  })
  afterEach(async () => {
    proxy.pass()
    await fleet?.stop()
    await proxy.stop()
  })

  test.each(OUTAGES)('%s (%d ms)', async (_name, ms, { begin, end, keepsLeases }) => {
    fleet = await Fleet.start(database, proxy, { lockTimeoutMs: keepsLeases ? LONG_LOCK_TIMEOUT_MS : LOCK_TIMEOUT_MS })
    fleet.startLoad()
    await fleet.works(20)
    begin(proxy)
    await sleep(ms)
    const failures = await fleet.failuresUntilBack(() => (end ? end(proxy) : proxy.pass()))
    await fleet.works(20)
    await fleet.drain()
    const { repeated, documents: _, ...wrong } = await fleet.account()
    expect(wrong).toEqual({ lost: [], redone: [], overlapping: [], untrue: [] })
    if (keepsLeases) expect(repeated).toEqual([])
    expect(failures).toBeLessThanOrEqual(MOST_FAILURES)
    expect(Math.max(...fleet.logLines())).toBeLessThanOrEqual(12)
  })
})
