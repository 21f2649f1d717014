import { describe, expect, test } from '@jest/globals'
import { ClaimPace } from '../../src/lock/claim/claim-commands.js'
import { Contention } from '../../src/lock/select/contention.js'
import { ManualClock } from './fixture.js'

describe('how much a claim takes', () => {
  const LEASE_MS = 30_000

  function paceOf() {
    const clock = new ManualClock()
    const pace = new ClaimPace(clock)
    const claim = (documents: number, ms: number) =>
      pace.timed('Creating', documents, LEASE_MS, async () => clock.advance(ms))
    return { pace, claim, most: () => pace.most('Creating') }
  }

  test('any number, as long as claims take no more than a third of a lease', async () => {
    const { claim, most } = paceOf()
    await claim(1_000, LEASE_MS / 3)
    expect(most()).toBe(Number.POSITIVE_INFINITY)
  })

  test('half as many after each that took longer, down to one', async () => {
    const { claim, most } = paceOf()
    await claim(1_000, LEASE_MS / 3 + 1)
    expect(most()).toBe(500)
    for (let i = 0; i < 12; i += 1) await claim(most(), LEASE_MS)
    expect(most()).toBe(1)
  })

  test('a failed command counts as one that took too long, however quick it was; so does a claim that throws', async () => {
    const { pace, claim, most } = paceOf()
    await pace.timed('Creating', 100, LEASE_MS, async () => pace.failed())
    expect(most()).toBe(50)
    await pace.timed('Creating', 50, LEASE_MS, () => Promise.reject(new Error('no'))).catch(() => undefined)
    expect(most()).toBe(25)
    await claim(25, 0)
    expect(most()).toBe(25)
  })

  test('twice as many after eight in time that were as large as it may be, and any number from 1,000 on', async () => {
    const { claim, most } = paceOf()
    await claim(1_000, LEASE_MS)
    for (let i = 0; i < 20; i += 1) await claim(100, 0) // too small to show anything
    expect(most()).toBe(500)
    for (let i = 0; i < 8; i += 1) await claim(500, 0)
    expect(most()).toBe(1_000)
    await claim(1_000, 0)
    expect(most()).toBe(Number.POSITIVE_INFINITY)
  })

  test('of one phase only', async () => {
    const { pace, claim } = paceOf()
    await claim(10, LEASE_MS)
    expect(pace.most('Deleting')).toBe(Number.POSITIVE_INFINITY)
  })
})

describe('a replica that loses candidates to others that it does not know of', () => {
  const documents = [0, 1, 2, 3].map((_id) => ({ _id }))
  const candidates = { lists: [{ documents }], retries: [] } as never
  const chosen = (one: Contention) => one.choose('Creating', candidates).lists[0]!.documents.map(({ _id }) => _id)
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
    contention.learn('Creating', result)
    expect(chosen(contention)).toEqual(order)
    expect(contention.reach('Creating')).toEqual(times > 1 ? { times } : {})
    expect(contention.reach('Deleting')).toEqual({})
    contention.learn('Creating', attempt(100, 0))
    expect(chosen(contention)).toEqual([0, 1, 2, 3])
  })

  test('with others that it knows, each has its own share: nothing is spread', () => {
    const contention = new Contention(
      () => true,
      () => 0.5,
    )
    contention.learn('Creating', attempt(100, 50))
    expect(chosen(contention)).toEqual([0, 1, 2, 3])
  })
})
