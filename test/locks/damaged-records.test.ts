import { describe, expect, test } from '@jest/globals'
import { MaxKey, Timestamp } from 'mongodb'
import { holderIdentity } from '../../src/locks/acquisition.js'
import { NamedLocks } from '../../src/locks/named-locks.js'
import { MongoLockStore } from '../../src/locks/providers/mongodb.js'
import { heldLock, listLocks } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'

describe("a lock's record that was edited by hand, in MongoDB", () => {
  const database = useDatabase()
  const locks = (name = 'here') => new NamedLocks(new MongoLockStore(database.db), holderIdentity(name))
  const edit = (_id: string, fields: object) =>
    database.db.collection<{ _id: string }>('shedLock').updateOne({ _id }, { $set: fields })
  const config = (name: string) => ({ name, lockAtMostFor: '1h' }) as const

  test.each([
    ['a text', '2099-01-01T00:00:00.000Z'],
    ['a number', 4e12],
    ['true', true],
    ['a Timestamp', new Timestamp({ t: 4_000_000_000, i: 1 })],
    ['a pattern', /x/],
    ['MaxKey', new MaxKey()],
  ])('is free, and mended when it is next taken, where lockUntil is %s', async (name, lockUntil) => {
    const [holder, other] = [locks('one'), locks('two')]
    const held = (await holder.lock(config(name)))!
    await edit(name, { lockUntil })
    expect((await listLocks(other)).map((one) => one.name)).not.toContain(name)
    expect(await holder.holders([name])).toEqual(new Map())
    expect(await held.extend('1h')).toBeUndefined()
    // To one that has seen the name before, and to one that hasn't.
    const taken = (await holder.lock(config(name)))!
    await edit(name, { lockUntil })
    expect(await other.lock(config(name))).toMatchObject({ fence: expect.any(Number) })
    expect(await heldLock(other, name)).toMatchObject({ lockUntil: expect.any(Date) })
    expect(await taken.unlock()).toBe(false)
  })

  test.each([
    ['a text', 'yesterday'],
    ['a Timestamp', new Timestamp({ t: 4_000_000_000, i: 1 })],
  ])('is extended and unlocked where lockedAt is %s', async (what, lockedAt) => {
    const [name, provider] = [`since ${what}`, locks()]
    const held = (await provider.lock({ ...config(name), lockAtLeastFor: '0s' }))!
    await edit(name, { lockedAt })
    const extended = (await held.extend('2h'))!
    expect(await extended.unlock()).toBe(true)
    expect(await provider.lock(config(name))).toBeDefined()
  })
})
