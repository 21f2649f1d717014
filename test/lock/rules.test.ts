import { describe, expect, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { PARKED_AT, ruleLook, ruleUpdate, STATE_INDEX, type StateRule } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import {
  ago,
  claimed,
  claimer,
  endOf,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  moveTo,
  PHASE,
  put,
  read,
  TERMS,
  wait,
  writer,
} from './fixture.js'

const RULE: StateRule = { when: 'Deleted', from: [PHASE, 'Resting'], moveTo: 'Deleting' }

async function apply(collection: Collection, rule = RULE): Promise<number> {
  const found = await collection.find(ruleLook(TERMS, rule)).hint(STATE_INDEX).toArray()
  const [filter, update] = ruleUpdate(TERMS, rule, ['a', ...found.map((document) => document._id)])
  return (await collection.updateMany(filter, update)).modifiedCount
}

describe('a state rule', () => {
  const database = useDatabase()
  const base = { _id: 'a', phase: PHASE, state: 'Deleted' }

  const notHeld: [string, Document][] = [
    ['free', { lockedAt: new Date(0) }],
    ['expired', { lockedAt: ago(LOCK_TIMEOUT_MS + 1), lockedBy: 'x#1.1' }],
    ['asleep', { lockedAt: ago(5_000) }],
    ['asleep for hours', { lockedAt: ago(-7_200_000) }],
    ['parked', { lockedAt: PARKED_AT }],
    ['without lockedAt', {}],
    ['without lockedAt, with lockedBy', { lockedBy: 'x#1.1' }],
    ['with lockedBy null', { lockedAt: '$$NOW', lockedBy: null }],
    ['resting', { phase: 'Resting', lockedAt: new Date(0) }],
  ]
  test.each(notHeld)('takes a document that is %s, and removes lockedBy', async (_name, fields) => {
    const collection = await lockedCollection(database.db)
    await put(collection, { ...base, ...fields })
    expect(await apply(collection)).toBe(1)
    const document = await read(collection, 'a')
    expect(document).toMatchObject({ phase: 'Deleting', lockedAt: new Date(0) })
    expect(document).not.toHaveProperty('lockedBy')
  })

  const untouched: [string, Document][] = [
    ['held', { lockedAt: '$$NOW', lockedBy: 'x#1.1' }],
    ['held for a while', { lockedAt: ago(LOCK_TIMEOUT_MS - 20_000), lockedBy: 'x#1.1' }],
    ['in another phase', { phase: 'Deleting' }],
    ['in an array of phases', { phase: [PHASE] }],
    ['of another state', { state: 'Running' }],
    ['without a state', { state: null }],
  ]
  test.each(untouched)('does not touch a document that is %s', async (_name, fields) => {
    const collection = await lockedCollection(database.db)
    await put(collection, { ...base, ...fields })
    const before = await read(collection, 'a')
    expect(await apply(collection)).toBe(0)
    expect(await read(collection, 'a')).toEqual(before)
  })

  test("a held document: its holder's write is recorded, and then the rule takes it", async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, base)
    const { lease } = await claimed(collection)
    expect(await apply(collection)).toBe(0)
    const end = endOf(lease, wait(60_000))
    expect((await writer(collection).write([end])).get(end)).toEqual({ kind: 'recorded' })
    expect(await apply(collection)).toBe(1)
  })

  test("a progress of the owner's: the phase changes, the progress stays", async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, { ...base, progress: 'mine' })
    expect(await apply(collection)).toBe(1)
    expect(await read(collection, 'a')).toMatchObject({ phase: 'Deleting', progress: 'mine' })
  })

  test('may set the state too', async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, { ...base, state: 'Restarting' })
    const restart = { when: 'Restarting', from: [PHASE], moveTo: 'Starting', setState: 'Running' }
    expect(await apply(collection, restart)).toBe(1)
    expect(await read(collection, 'a')).toMatchObject({ phase: 'Starting', state: 'Running' })
  })

  test('against a claim, 400 rounds on one document: never both, never neither', async () => {
    const collection = await lockedCollection(database.db)
    const { claims } = await claimer(collection)
    const wins = { rule: 0, claim: 0, both: 0, neither: 0 }
    for (let round = 0; round < 400; round += 1) {
      await collection.replaceOne({ _id: 'a' as never }, { phase: PHASE, state: 'Deleted' }, { upsert: true })
      const claiming = () => claims.claimNamed(PHASE, ['a'])
      const ruling = () => collection.updateMany(...ruleUpdate(TERMS, RULE, ['a']))
      const [claim, ruled] =
        round % 2 === 0
          ? await Promise.all([claiming(), ruling()])
          : await Promise.all([ruling(), claiming()]).then(([r, c]) => [c, r] as const)
      const won = { claim: claim.claimed.length === 1, rule: ruled.modifiedCount === 1 }
      wins[won.claim && won.rule ? 'both' : won.claim ? 'claim' : won.rule ? 'rule' : 'neither'] += 1
      const { phase } = await read(collection, 'a')
      expect(phase).toBe(won.rule ? 'Deleting' : PHASE)
    }
    expect(wins).toMatchObject({ both: 0, neither: 0 })
    expect(wins.rule + wins.claim).toBe(400)
  })

  test('an expired holder writes late into a document that a rule has taken: lost, and Deleting stays', async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, base)
    const { lease } = await claimed(collection)
    await collection.updateOne({ _id: 'a' as never }, [{ $set: { lockedAt: ago(31_000) } }])
    expect(await apply(collection)).toBe(1)
    const late = endOf(lease, moveTo('Created'))
    expect((await writer(collection).write([late])).get(late)).toEqual({ kind: 'lost' })
    expect(await read(collection, 'a')).toMatchObject({ phase: 'Deleting' })
  })
})
