import { describe, expect, test } from '@jest/globals'
import { Renewals } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { claimer, interrupted, lockedCollection, ManualClock, PHASE, TERMS } from './fixture.js'

/** So long each command takes, on its way there and on its way back. */
const EACH_WAY_MS = 4_000

describe('the local age of a lease counts from before its command was sent', () => {
  const database = useDatabase()

  async function slow(method: 'updateMany' | 'findOneAndUpdate') {
    const collection = await lockedCollection(database.db)
    await collection.insertMany(['a', 'b', 'c'].map((_id) => ({ _id: _id as never, phase: PHASE })))
    const clock = new ManualClock()
    const passes = () => clock.advance(EACH_WAY_MS)
    const through = interrupted(collection, method, { before: passes, after: passes })
    return { through, clock, replica: await claimer(through, { clock }) }
  }

  test('a claim of some', async () => {
    const { replica } = await slow('updateMany')
    const { claimed } = await replica.claims.claimBatch(PHASE, 10)
    expect(claimed.map(({ lease }) => lease.ageMs())).toEqual(Array(3).fill(2 * EACH_WAY_MS))
  })

  test('a claim of one, whichever is first or by its name', async () => {
    const { replica } = await slow('findOneAndUpdate')
    const first = await replica.claims.claimBatch(PHASE, 1)
    expect(first.claimed.map(({ lease }) => lease.ageMs())).toEqual([2 * EACH_WAY_MS])
    const named = await replica.claims.claimNamed(PHASE, ['b'])
    expect(named.claimed.map(({ lease }) => lease.ageMs())).toEqual([2 * EACH_WAY_MS])
  })

  test('a renewal', async () => {
    const { replica, through, clock } = await slow('updateMany')
    const leases = (await replica.claims.claimBatch(PHASE, 10)).claimed.map(({ lease }) => lease)
    expect(await new Renewals(through, () => TERMS, clock).renew(leases)).toEqual([])
    expect(leases.map((lease) => lease.ageMs())).toEqual(Array(3).fill(2 * EACH_WAY_MS))
  })
})
