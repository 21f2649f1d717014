import { expect, jest, test } from '@jest/globals'
import { connectWith } from '../../src/database/connect.js'
import { NoDatabase } from '../../src/database/index.js'
import { warningsLogger } from '../../src/phases/index.js'

test('without a log of its own, a connection writes lines as a replica without a logger does', async () => {
  const local = {
    openLocalDatabase: async ({ starting }: { starting: (server: object) => void }) => {
      starting({ source: 'system-mongod', name: 'mongod', dataPath: '/data/db' })
      return { tried: [] }
    },
  }
  const written: string[] = []
  const spy = jest.spyOn(process.stderr, 'write').mockImplementation((text) => written.push(String(text)) > 0)
  try {
    await expect(connectWith({ env: {} }, async () => local as never)).rejects.toThrow(NoDatabase)
    warningsLogger.warn('a step failed', { id: 'ann' })
  } finally {
    spy.mockRestore()
  }
  expect(written).toEqual([
    "phaselock info: starting mongod { data: '/data/db' }\n",
    "phaselock warn: a step failed { id: 'ann' }\n",
  ])
})
