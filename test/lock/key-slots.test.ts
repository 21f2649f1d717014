import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { askForKeys, forgetKeys, LIMITS_COLLECTION } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'

describe('the slots of a key', () => {
  const database = useDatabase()
  const key = { slots: 1 }
  const stored = () => database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION).findOne({ _id: 'k' })
  const ask = async (by: string, inUse: number, slots: number, turn: number) => {
    const request = { by, inUse, slots, starts: 0, leaseMs: 30_000, turn, key }
    return (await askForKeys(database.db, new Map([['k', request]]))).get('k')!
  }

  test('are not forgotten by a request that arrives late', async () => {
    expect(await ask('a~1', 0, 1, 1)).toMatchObject({ slots: 1 })
    // Sent before the next request, and executed after it.
    const forget = () => forgetKeys(database.db, ['k'], 'a~1', 2)
    expect(await ask('a~1', 0, 1, 3)).toMatchObject({ slots: 1 })
    expect(await forget()).toBe(false)
    expect(await ask('b~1', 0, 1, 1)).toMatchObject({ slots: 0 })
    await ask('b~1', 0, 0, 2)
    await ask('a~1', 0, 0, 4)
    expect(await forgetKeys(database.db, ['k'], 'a~1', 5)).toBe(true)
    expect(await stored()).toBeNull()
  })

  test('that are in use are there again with the next request where somebody has removed their limit', async () => {
    await ask('a~1', 0, 1, 1)
    await database.db.collection(LIMITS_COLLECTION).deleteMany({})
    expect(await ask('a~1', 1, 0, 2)).toMatchObject({ slots: 1 })
    expect(await ask('b~1', 0, 1, 1)).toMatchObject({ slots: 0 })
  })
})
