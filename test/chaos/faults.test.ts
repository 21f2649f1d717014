import { describe, expect, test } from '@jest/globals'
import { FAULT_KINDS, planFaults, REPLICA_SET_FAULT_KINDS, ROUND_KINDS, Rounds } from '../../chaos/faults/plan.ts'
import { OffTheWay, roundStepNumber } from '../../chaos/faults/round-order.ts'
import type { FaultsResult } from '../../chaos/faults/run-faults.ts'
import { chaos } from './chaos.js'

describe('chaos --faults', () => {
  test('a random fault every second: nothing is lost, repeated, overlapping or stuck', async () => {
    const { code, out, err } = await chaos(['--faults', '--minutes', '0.5', '--seed', '1', '--json'])
    expect(out === '' ? err : '').toBe('')
    const result = JSON.parse(out) as FaultsResult
    expect({ ...result, err: result.off?.length === 0 ? '' : err }).toMatchObject({
      verdict: 'shown',
      off: [],
      lost: 0,
      repeated: 0,
      overlapping: 0,
      outOfOrder: 0,
      wrongOrders: 0,
      stuck: 0,
      crashed: 0,
      seed: 1,
    })
    expect(code).toBe(0)
    expect(result.documents).toBeGreaterThan(20)
    expect(result.orders).toBeGreaterThan(10)
    const kinds = ['databaseKilled', 'databaseBlackholed', 'replicaPaused', 'replicaKilled']
    expect(Object.keys(result.faults)).toEqual(expect.arrayContaining(kinds))
    expect(Object.values(result.faults).reduce((sum, count) => sum + count, 0)).toBeGreaterThan(20)
  }, 900_000)

  test('refuses settings that it does not know', async () => {
    for (const args of [
      ['--faults', '--minutes', '0'],
      ['--faults', '--seed', '1.5'],
      ['--faults', '--break', 'no-token'],
      ['--kubernetes', '--ledger', 'ledger.jsonl'],
      ['--faultz'],
    ]) {
      const { code, out } = await chaos(args)
      expect({ args, code, out }).toEqual({ args, code: 2, out: '' })
    }
  })
})

describe('the plan of faults', () => {
  test('is the same for the same seed, another for another, and has each kind', () => {
    expect(planFaults(1, 60)).toEqual(planFaults(1, 60))
    expect(planFaults(2, 60)).not.toEqual(planFaults(1, 60))
    expect(new Set(planFaults(1, 60).map(({ kind }) => kind))).toEqual(new Set(FAULT_KINDS))
  })

  test('never has the database disturbed twice at once, nor without a pause', () => {
    const database = planFaults(3, 300).filter(({ kind }) => kind.startsWith('database'))
    expect(database.length).toBeGreaterThan(10)
    for (const [i, fault] of database.entries()) {
      const next = database[i + 1]
      if (next) expect(next.atMs - (fault.atMs + fault.forMs)).toBeGreaterThanOrEqual(3_000)
    }
  })
})

describe('the rounds of faults of a replica set', () => {
  const kinds = REPLICA_SET_FAULT_KINDS.filter((kind) => ROUND_KINDS.has(kind))
  const of = (rounds: Rounds, count: number) => Array.from({ length: count }, () => rounds.next()!)

  test('are the same for the same seed, and none has two more than another', () => {
    expect(of(new Rounds(1, kinds), 20)).toEqual(of(new Rounds(1, kinds), 20))
    expect(of(new Rounds(2, kinds), 20)).not.toEqual(of(new Rounds(1, kinds), 20))
    const rounds = new Rounds(3, kinds)
    for (let n = 1; n <= 4; n += 1) {
      expect(new Set(of(rounds, kinds.length).map(({ kind }) => kind))).toEqual(new Set(kinds))
      expect(rounds.fewest).toBe(n)
    }
  })

  test('without any there is none', () => {
    const rounds = new Rounds(1, [])
    expect([rounds.next(), rounds.fewest]).toEqual([undefined, Number.POSITIVE_INFINITY])
  })
})

describe('the order of steps of a gateway whose owner changes its mind', () => {
  const number = (round: number, state: string, phase: string, step?: string) =>
    roundStepNumber('api-gateway', phase, step, { round, state })

  test('grows with the rounds, and within one along the way to its state', () => {
    const way = [
      number(0, 'Running', 'Creating'),
      number(0, 'Running', 'Creating', 'children'),
      number(0, 'Running', 'Starting'),
      number(1, 'Stopped', 'Starting', 'triggers'),
      number(1, 'Stopped', 'Stopping'),
      number(2, 'Running', 'Stopping', 'triggers'),
      number(2, 'Running', 'Starting'),
      number(3, 'Deleted', 'Starting'),
      number(3, 'Deleted', 'Deleting'),
    ]
    expect([...way].sort((a, b) => a - b)).toEqual(way)
    expect(new Set(way).size).toBe(way.length)
  })

  test('knows no way back', () => {
    expect(() => number(0, 'Running', 'Deleting')).toThrow(OffTheWay)
  })
})
