import { expect, test } from '@jest/globals'
import { patiently } from '../../src/cli/start/patiently.js'
import { openWorkspace } from '../../src/cli/workspace.js'
import { readSettings } from '../../src/config/index.js'
import { DatabaseUnreachable } from '../../src/database/index.js'
import { silentLogger } from '../../src/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'

const database = useDatabase()

function starts(failures: readonly unknown[], connectTimeout: string) {
  const warned: string[] = []
  const left: number[] = []
  const logger = { ...silentLogger, warn: (message: string) => void warned.push(message) }
  const started = patiently(readSettings({}, { connectTimeout }), logger, async (settings) => {
    const failure = failures[left.length]
    left.push(settings.connectTimeout)
    if (failure !== undefined) throw failure
    return 'started'
  })
  return { started, warned, left }
}
const unreachable = (reason: DatabaseUnreachable['reason']) => new DatabaseUnreachable('mongodb://h/x', reason, 'said')
const noPrimary = Object.assign(new Error('not primary'), { name: 'MongoServerError', code: 10_107 })

test('an election during the start is waited for, and that is said', async () => {
  const { started, warned, left } = starts([unreachable('timeout'), noPrimary], '30s')
  expect(await started).toBe('started')
  expect(warned).toEqual([
    expect.stringMatching(/^the database doesn't answer; trying again for up to (30|29(\.\d)?) s: .*said/),
    expect.stringMatching(/^the database doesn't answer; trying again for up to .*not primary/),
  ])
  expect(left).toHaveLength(3)
  expect(left[2]).toBeLessThan(30_000)
})

test('what waiting does not mend ends it at once; an outage once the time is over', async () => {
  for (const failure of [unreachable('authentication'), unreachable('no-such-host'), new TypeError('x')]) {
    const { started, left } = starts([failure], '30s')
    await expect(started).rejects.toBe(failure)
    expect(left).toHaveLength(1)
  }
  await expect(starts(Array(9).fill(noPrimary), '1s').started).rejects.toBe(noPrimary)
})

test('a server that answers again within the time is used', async () => {
  const proxy = await TcpProxy.start(database.uri)
  proxy.refuse()
  const settings = readSettings({}, { uri: proxy.uri, connectTimeout: '1m', lifecycles: 'phaselock/tasks' })
  const said: string[] = []
  const logger = { ...silentLogger, info: (message: string) => void said.push(message) }
  const opening = patiently(settings, logger, (own) => openWorkspace({ settings: own, cwd: '.', env: {}, logger }))
  await eventually(() => said.length > 0, { timeoutMs: 60_000 })
  expect(said[0]).toMatch(/^the MongoDB server has not answered yet; waiting for up to 1 min/)
  proxy.pass()
  const { connection } = await opening
  expect(await connection.db.command({ ping: 1 })).toMatchObject({ ok: 1 })
  await connection.close()
  await proxy.stop()
}, 90_000)
