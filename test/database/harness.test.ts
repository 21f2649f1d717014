import { describe, expect, it } from '@jest/globals'
import { eventually, testDatabase, useDatabase } from '../support/database.js'

describe('the test database', () => {
  const test = useDatabase()

  it('is empty and takes durable writes', async () => {
    expect(await test.db.listCollections().toArray()).toEqual([])
    await test.db.collection('a').insertOne({ x: 1 }, { writeConcern: { w: 'majority', journal: true } })
    expect(await test.db.collection('a').countDocuments()).toBe(1)
  })

  it('is another one for each test', async () => {
    expect(await test.db.listCollections().toArray()).toEqual([])
    const other = await testDatabase()
    expect(other.db.databaseName).not.toBe(test.db.databaseName)
    await other.db.collection('a').insertOne({})
    expect(await test.db.listCollections().toArray()).toEqual([])
    await other.drop()
    const { databases } = await test.client.db('admin').command({ listDatabases: 1 })
    expect(databases.map(({ name }: { name: string }) => name)).not.toContain(other.db.databaseName)
  })
})

describe('eventually', () => {
  it('waits for a condition and gives its value', async () => {
    let calls = 0
    expect(await eventually(() => ++calls > 2 && calls)).toBe(3)
  })

  it('throws the last error when the time is over', async () => {
    await expect(eventually(() => expect(1).toBe(2), { timeoutMs: 50 })).rejects.toThrow(/toBe/)
  })
})
