import { describe, expect, test } from '@jest/globals'
import { endUpdate } from '../../src/lock/end/end-update.js'
import { type EndKind, parseToken } from '../../src/lock/index.js'
import { replicaIdentity } from '../../src/options/index.js'
import { useDatabase } from '../support/database.js'
import {
  again,
  ago,
  checkpoint,
  claimed,
  claimer,
  ENDS,
  endOf,
  lockedCollection,
  moveTo,
  PHASE,
  put,
  read,
  released,
  TERMS,
  unlock,
  writer,
} from './fixture.js'

const ALL_ENDS: readonly [string, EndKind][] = [
  ...ENDS,
  ['unavailable', { kind: 'unavailable', step: null, reason: 'down', forMs: null }],
  ['release', released],
]

describe('the token changes with every write that ends a step, so', () => {
  const database = useDatabase()

  test.each(ALL_ENDS)(
    'after %s every late or repeated write under the old token matches nothing',
    async (_n, first) => {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE })
      const { lease } = await claimed(collection)
      const { token } = lease
      // The late ones as they were sent while the token still stood there.
      const sent = ALL_ENDS.map(([, end]) =>
        endUpdate(TERMS, { token, end, members: [endOf(lease, end)], nextToken: `${token}x` }),
      )
      await writer(collection).write([endOf(lease, first)])
      const recorded = await read(collection, 'a')
      for (const update of sent) {
        const { matchedCount } = await collection.updateMany({ _id: { $in: ['a' as never] }, lockedBy: token }, update)
        expect(matchedCount).toBe(0)
      }
      expect(await read(collection, 'a')).toEqual(recorded)
    },
  )

  test('a write after the lease expired and another claimed is lost, and changes nothing', async () => {
    for (const [, end] of ALL_ENDS) {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE })
      const { lease } = await claimed(collection)
      await collection.updateOne({ _id: 'a' as never }, [{ $set: { lockedAt: ago(31_000) } }])
      const other = await claimed(collection)
      const before = await read(collection, 'a')
      const late = endOf(lease, end)
      expect((await writer(collection).write([late])).get(late)).toEqual({ kind: 'lost' })
      expect(lease.leftMs()).toBe(0)
      expect(await read(collection, 'a')).toEqual(before)
      expect(before['lockedBy']).toBe(other.lease.token)
      await collection.deleteMany({})
    }
  })

  test('a write to a document that was replaced or deleted is lost', async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE }, { _id: 'b', phase: PHASE })
    const { claims } = await claimer(collection)
    const [one, two] = (await claims.claimBatch(PHASE, 2)).claimed
    await collection.replaceOne({ _id: one!.lease.id as never }, { phase: PHASE })
    await collection.deleteOne({ _id: two!.lease.id as never })
    const ends = [endOf(one!.lease, moveTo('Next')), endOf(two!.lease, moveTo('Next'))]
    expect([...(await writer(collection).write(ends)).values()]).toEqual([{ kind: 'lost' }, { kind: 'lost' }])
    expect(await read(collection, one!.lease.id)).toEqual({ _id: one!.lease.id, phase: PHASE })
    expect(await collection.countDocuments()).toBe(1)
  })

  test('every token of a chain, a batch and its claims is given out once', async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE })
    const replica = await claimer(collection)
    const tokens: string[] = []
    for (let claim = 0; claim < 3; claim += 1) {
      const { lease } = await claimed(collection, replica)
      tokens.push(lease.token)
      for (const end of [again(), checkpoint, again(), unlock]) {
        await writer(collection).write([endOf(lease, end)])
        if (end !== unlock) tokens.push(lease.token)
      }
    }
    expect(new Set(tokens).size).toBe(tokens.length)
    expect(parseToken(tokens[1]!)).toMatchObject({ replica: replica.identity, name: 'r', step: 2 })
  })

  test("a replica's name is unique per start and can't break the token's form", () => {
    expect(replicaIdentity('api', () => 0)).not.toBe(replicaIdentity('api', () => 0.5))
    expect(replicaIdentity('a#1~b', () => 0)).toBe('a-1-b~000000')
  })
})
