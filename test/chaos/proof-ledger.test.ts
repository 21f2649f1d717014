import { describe, expect, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { Ledger, type StepEntry } from '../../chaos/proof/ledger.ts'
import { type LedgerStep, StepLedger } from '../../chaos/proof/observed-handlers.ts'
import { useDatabase } from '../support/database.js'

const testDb = useDatabase()
const lasting = (leaseLeftMs: () => number): LedgerStep => ({
  document: 'api-gateway/1',
  number: 1,
  step: 'Creating',
  fence: 1,
  leaseLeftMs,
})
const entries = async () => (await new Ledger(testDb.db).all()) as StepEntry[]

describe("a replica's side of the ledger", () => {
  test('a step within its lease has begun and ended, with what was left', async () => {
    const ledger = new StepLedger(testDb.db, 'a')
    const step = lasting(() => 3_600)
    await ledger.begin(step)
    await ledger.end(step, 'again')
    expect(await entries()).toMatchObject([
      { kind: 'begin', leaseLeftMs: 3_600, fence: 1, replica: 'a', at: expect.any(Date) },
      { kind: 'end', leaseLeftMs: 3_600, outcome: 'again' },
    ])
  })

  test('a lease that is over before the answer has come: the handler does not run, and an end says that nothing was left', async () => {
    const ledger = new StepLedger(testDb.db, 'a')
    const step = lasting(() => 0)
    await expect(ledger.begin(step)).rejects.toThrow('has not begun: its lease was over')
    await ledger.end(step, 'again')
    expect(await entries()).toMatchObject([
      { kind: 'late', leaseLeftMs: 0 },
      { kind: 'end', leaseLeftMs: 0, outcome: 'again' },
    ])
  })

  test.each(['begin', 'end'] as const)(
    'a process that is stopped before its %s is stamped, and killed right after, has proven nothing',
    async (kind) => {
      const client = await new MongoClient(testDb.uri, { monitorCommands: true }).connect()
      let stamped = false
      // Time is left while the entry is on its way; with the server's answer the lease is over and the connection gone.
      client.on('commandSucceeded', ({ commandName }) => {
        if (commandName !== 'update') return
        stamped = true
        void client.close()
      })
      const ledger = new StepLedger(client.db(testDb.db.databaseName), 'a')
      const step = lasting(() => (stamped ? 0 : 3_600))
      await Promise.allSettled([kind === 'begin' ? ledger.begin(step) : ledger.end(step, 'again')])
      expect(await entries()).toMatchObject([{ kind: kind === 'begin' ? 'late' : 'end', leaseLeftMs: 0 }])
    },
  )
})
