import { expect, test } from '@jest/globals'
import type { DemoResult } from '../../src/cli/demo/run-demo.js'
import { eventually, useDatabase } from '../support/database.js'
import { childrenOf, isAlive, runProgram } from '../support/programs.js'

const testDb = useDatabase()

/** The built program, on the run's server. */
const demo = (args: readonly string[], onText?: (text: string, pid: number) => void) =>
  runProgram(['dist/cli/main.js', 'demo', ...args], onText)
const replicasOf = (pid: number) => childrenOf(pid, 'demo/replica-process.js')

test('the storage fails and comes back, a replica is killed: every tenant is ready in the end, and nothing is left behind', async () => {
  const { code, out, err } = await demo(['--json'])
  const result = JSON.parse(out) as DemoResult
  const zeros = { lost: 0, repeated: 0, overlapping: 0 }
  expect(result).toMatchObject({ verdict: 'shown', documents: 30, ...zeros, lockTimeoutSeconds: 4 })
  expect(code).toBe(0)
  // One line for all of them, with the reason that the operating system gave.
  expect(result.parked).toBeGreaterThanOrEqual(10)
  expect(result.causes).toMatch(new RegExp(`^[0-9a-f]{12} +park +tenant +${result.parked} .*ECONNREFUSED`, 'm'))
  expect(result.leasesAtKill).toBeGreaterThanOrEqual(1)
  expect(result.stepsBegun).toBe(3 * 30 + result.stepsRunAgain)
  expect(result.stepsRunAgain).toBeGreaterThanOrEqual(3 * result.parked)
  expect(result.recoverySeconds).toBeGreaterThan(0)
  expect(err).toContain('killed replica a (kill -9)')
  expect(err).toContain('nothing needs a person')
  const [, database] = /PHASELOCK_DATABASE=(phaselock_demo_\w+) npx phaselock status/.exec(err)!
  const { databases } = await testDb.db.admin().listDatabases({ nameOnly: true })
  expect(databases.map(({ name }) => name)).not.toContain(database)
}, 300_000)

test.each([
  ['SIGINT', 130],
  ['SIGKILL', null],
] as const)(
  'ended by %s, it leaves no process behind',
  async (signal, exitCode) => {
    let replicas: number[] = []
    let asked = false
    const { code, out } = await demo([], (text, pid) => {
      if (asked || !text.includes('inserted')) return
      asked = true
      void replicasOf(pid).then((found) => {
        replicas = found
        process.kill(pid, signal)
      })
    })
    expect({ code, out }).toEqual({ code: exitCode, out: '' })
    expect(replicas).toHaveLength(2)
    await eventually(() => replicas.filter(isAlive).length === 0, { timeoutMs: 60_000 })
  },
  240_000,
)

test.each([
  [['--proof'], '`npm run demo -- --proof`'],
  [['--ledger', 'file'], '`npm run demo -- --proof --ledger file`'],
  [['--documents', '40'], '`npm run demo -- --proof --documents 40`'],
  [['--lock-timeout=3s'], '`npm run demo -- --proof --lock-timeout 3s`'],
  [['--sync'], '`npm run demo -- --sync`'],
  [['--faults', '--minutes', '1'], '`npm run chaos -- --faults`'],
  [['--kubernetes'], '`npm run chaos -- --kubernetes`'],
  [['--break', 'no-token'], '`npm run chaos -- --break no-token`'],
  [['--minutes', '3'], '`npm run chaos -- --minutes 3`'],
])('says where %j is', async (args, where) => {
  const { code, err } = await demo(args)
  expect(code).toBe(2)
  expect(err).toContain(where)
})
