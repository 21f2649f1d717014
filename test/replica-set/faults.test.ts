import { expect, test } from '@jest/globals'
import { DATABASE_FAULT_KINDS, REPLICA_SET_FAULT_KINDS } from '../../chaos/faults/plan.ts'
import type { FaultsResult } from '../../chaos/faults/run-faults.ts'
import { chaos } from '../chaos/chaos.js'
import { describeWithMongod } from './mongod.js'

/** Each fault of the replica set strikes once, however long that takes. */
const PLAN = ['--minutes', '1', '--seed', '1158']

describeWithMongod('chaos --replica-set', () => {
  test('elections, kills, pauses, partitions, restarts and a resync: nothing is lost, repeated, overlapping or stuck', async () => {
    const { code, out, err } = await chaos(['--replica-set', ...PLAN, '--json'])
    expect(out === '' ? err : '').toBe('')
    const result = JSON.parse(out) as FaultsResult
    expect({ ...result, err: result.off?.length === 0 ? '' : err }).toMatchObject({
      verdict: 'shown',
      off: [],
      lost: 0,
      repeated: 0,
      overlapping: 0,
      outOfOrder: 0,
      wrongTimed: 0,
      wrongOrders: 0,
      stuck: 0,
      crashed: 0,
      replicaSet: true,
    })
    expect(code).toBe(0)
    expect(result.sections).toBeGreaterThan(100)
    expect(result.runs).toBeGreaterThan(50)
    const ofTheSet = REPLICA_SET_FAULT_KINDS.filter((kind) => DATABASE_FAULT_KINDS.has(kind) && !result.leftOut[kind])
    expect(Object.keys(result.faults)).toEqual(expect.arrayContaining(ofTheSet))
    expect(Object.keys(result.stoodStillMs).sort()).toEqual([...ofTheSet].sort())
    process.stderr.write(`no step began for (ms): ${JSON.stringify(result.stoodStillMs)}\n`)
  }, 900_000)
})
