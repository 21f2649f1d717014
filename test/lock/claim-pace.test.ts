import { describe, expect, test } from '@jest/globals'
import { MongoNetworkError } from 'mongodb'
import { PhaseMemory } from '../../src/lock/index.js'
import { Contention } from '../../src/lock/select/work-split.js'
import { useDatabase } from '../support/database.js'
import { claimer, interrupted, lockedCollection, ManualClock, PHASE, put, TERMS } from './fixture.js'

describe('how much a claim takes', () => {
  const memoryOf = () => new PhaseMemory('Creating')

  test('any number, as long as claims are in time', () => {
    const memory = memoryOf()
    memory.took(1_000, true)
    expect(memory.most).toBe(Number.POSITIVE_INFINITY)
  })

  test('half as many after each that was not, down to one', () => {
    const memory = memoryOf()
    memory.took(1_000, false)
    expect(memory.most).toBe(500)
    for (let i = 0; i < 12; i += 1) memory.took(memory.most, false)
    expect(memory.most).toBe(1)
  })

  test('twice as many after eight in time that were as large as it may be, and any number from 1,000 on', () => {
    const memory = memoryOf()
    memory.took(1_000, false)
    for (let i = 0; i < 20; i += 1) memory.took(100, true) // too small to show anything
    expect(memory.most).toBe(500)
    for (let i = 0; i < 8; i += 1) memory.took(500, true)
    expect(memory.most).toBe(1_000)
    memory.took(1_000, true)
    expect(memory.most).toBe(Number.POSITIVE_INFINITY)
  })
})

describe('a claim of many documents', () => {
  const database = useDatabase()

  test.each([
    ['takes no more than a third of a lease', 1 / 3, false, 4],
    ['takes longer', 0.34, false, 2],
    ['has a command that failed, however quick it was', 0, true, 2],
  ])('that %s: how many the next one takes', async (_what, part, fails, next) => {
    const collection = await lockedCollection(database.db)
    await put(collection, ...Array.from({ length: 8 }, (_, _id) => ({ _id, phase: PHASE })))
    const clock = new ManualClock()
    let claims = 0
    const after = () => {
      claims += 1
      if (claims > 1) return
      clock.advance(TERMS.leaseMs * part)
      if (fails) throw new MongoNetworkError('the answer is lost')
    }
    const replica = await claimer(interrupted(collection, 'updateMany', { after }), { clock })
    const memory = new PhaseMemory(PHASE)
    expect((await replica.claims.claimBatch(memory, 4)).claimed).toHaveLength(4)
    expect((await replica.claims.claimBatch(memory, 4)).claimed).toHaveLength(next)
  })
})

describe('a replica that loses candidates to others that it does not know of', () => {
  const documents = [0, 1, 2, 3].map((_id) => ({ _id }))
  const memory = new PhaseMemory('Creating')
  const candidates = { lists: [{ documents }], retries: [] } as never
  const chosen = (one: Contention) => one.choose(memory, candidates).lists[0]!.documents.map(({ _id }) => _id)
  const attempt = (tried: number, missed: number) =>
    ({ tried: Array(tried).fill(0), missed: Array(missed).fill(0), hasRefused: false }) as never

  test.each([
    ['a loss of more than a twentieth', attempt(100, 6), [2, 3, 0, 1], 4],
    ['a smaller one', attempt(100, 5), [0, 1, 2, 3], 1],
    ['the loss of a single document', attempt(1, 1), [0, 1, 2, 3], 1],
  ])('after %s', (_what, result, order, times) => {
    const contention = new Contention(
      () => false,
      () => 0.5,
    )
    contention.learn(memory, result)
    expect(chosen(contention)).toEqual(order)
    expect(contention.reach(memory)).toEqual(times > 1 ? { times } : {})
    expect(contention.reach(new PhaseMemory('Deleting'))).toEqual({})
    contention.learn(memory, attempt(100, 0))
    expect(chosen(contention)).toEqual([0, 1, 2, 3])
  })

  test('with others that it knows, each has its own share: nothing is spread', () => {
    const contention = new Contention(
      () => true,
      () => 0.5,
    )
    contention.learn(memory, attempt(100, 50))
    expect(chosen(contention)).toEqual([0, 1, 2, 3])
  })
})
