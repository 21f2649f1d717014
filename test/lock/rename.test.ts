import { describe, expect, test } from '@jest/globals'
import { type Lease, renameLook, renameUpdate } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import {
  ago,
  claimed,
  endOf,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  moveTo,
  PHASE,
  put,
  read,
  TERMS,
  writer,
} from './fixture.js'

const RENAME = { from: PHASE, to: 'Called otherwise' }

describe('a rename', () => {
  const database = useDatabase()

  test('takes the token of an expired holder away: its late outcome changes nothing', async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE })
    const { lease } = await claimed(collection)
    await collection.updateOne({ _id: 'a' as never }, [{ $set: { lockedAt: ago(LOCK_TIMEOUT_MS + 1_000) } }])
    expect(await collection.countDocuments(renameLook(TERMS, RENAME))).toBe(1)
    expect((await collection.updateMany(...renameUpdate(TERMS, RENAME, ['a']))).modifiedCount).toBe(1)
    const renamed = await read(collection, 'a')
    expect(renamed).toMatchObject({ phase: RENAME.to })
    expect(renamed).not.toHaveProperty('lockedBy')
    expect(await verdictOf(lease)).toBe('lost')
    expect(await read(collection, 'a')).toEqual(renamed)

    async function verdictOf(late: Lease) {
      const end = endOf(late, moveTo('Created'))
      return (await writer(collection).write([end])).get(end)?.kind
    }
  })
})
