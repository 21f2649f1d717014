import { describe, expect, jest, test } from '@jest/globals'
import type { CallbackEvent } from '../../src/index.js'
import { randomNumbers } from '../support/random.js'
import { type Job, jobsWith, useJobs } from './callbacks-fixture.js'
import { crashingReplicas } from './crashing-replicas.js'

jest.setTimeout(120_000)

const DOCUMENTS = 12
const CRASHES = 12

describe('callbacks beside crashes', () => {
  const { jobs, insert, pass, database } = useJobs()
  const replicaThatCrashes = crashingReplicas(database)

  test.each([1, 2, 3, 4])('none is lost, or told before its outcome, or out of order (seed %i)', async (seed) => {
    const random = randomNumbers(seed)
    const told = new Map<string, number[]>()
    const wrong: string[] = []
    const each = async ({ id, seq, from, to, callback }: CallbackEvent<Job> & { callback?: string }) => {
      const seqs = told.get(id) ?? []
      told.set(id, [...seqs, seq])
      const last = seqs.at(-1) ?? 0
      if (seq !== last && seq !== last + 1) wrong.push(`${id}: ${seq} after ${last}`)
      const history = ((await jobs().findOne({ _id: id }))?.['progress'].history ?? []) as Record<string, unknown>[]
      const isStored = history.some((one) => one['from'] === from && one['to'] === to && one['outcome'] !== 'again')
      if (!isStored) wrong.push(`${id}: ${callback} of ${from} -> ${to} before its outcome`)
      if (random() < 0.2) throw new Error('the receiver is away')
    }
    const own = () => jobsWith(each).lifecycle
    const alive = [await replicaThatCrashes(random, own()), await replicaThatCrashes(random, own())]
    for (let i = 0; i < DOCUMENTS; i += 1) await insert(`j${i}`, { fails: i % 4 === 0 })
    let crashes = 0
    for (let turn = 0; turn < 200; turn += 1) {
      await Promise.all(
        alive.map(async ({ replica, crashed }) => {
          const turn = replica.tick().then(() => replica.idle())
          await Promise.race([turn.catch(() => undefined), crashed])
        }),
      )
      for (const [i, one] of alive.entries()) {
        if (one.isUp()) continue
        crashes += 1
        void one.replica.stop()
        alive[i] = await replicaThatCrashes(crashes < CRASHES ? random : () => 1e9, own())
      }
      await pass(15_000)
      await jobs().updateMany({ 'progress.outbox.dueAt': { $exists: true } }, [
        { $set: { 'progress.outbox.tries': { $min: ['$progress.outbox.tries', 1] } } },
      ])
      const open = await jobs().countDocuments({
        $or: [
          { 'progress.outbox.next': { $exists: true } },
          { phase: { $in: ['First', 'Second'] }, lockedAt: { $lt: new Date('9999-01-01') } },
        ],
      })
      const unseen = await jobs().countDocuments({ lockedAt: { $exists: false } })
      if (open + unseen === 0 && crashes >= CRASHES) break
      if (open + unseen === 0) await insert(`more${turn}`)
    }
    expect(wrong).toEqual([])
    expect(crashes).toBeGreaterThanOrEqual(CRASHES)
    for (const { _id, progress, phase } of await jobs().find().toArray()) {
      const seqs = new Set(told.get(_id))
      const expected = phase === 'Done' ? 2 : 1
      expect({ _id, phase, seqs: [...seqs], outbox: progress.outbox }).toEqual({
        ...{ _id, phase, outbox: { seq: expected } },
        seqs: Array.from({ length: expected }, (_, i) => i + 1),
      })
    }
  })
})
