import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'

import { dueOutboxes, outboxDue } from '../../src/lock/outbox/deliveries.js'
import { outboxIndex } from '../../src/lock/outbox/outbox.js'
import { useDatabase } from '../support/database.js'

describe('outboxes that are due', () => {
  const database = useDatabase()

  test('are taken in the order in which they came due, whatever their phases and callbacks, without a sort', async () => {
    const collection = database.db.collection<Document & { _id: string }>('Job')
    const index = outboxIndex('progress')
    await collection.createIndex(index)
    const at = (s: number) => new Date(Date.now() - s * 1_000)
    const due = (_id: string, phase: string, next: string, s: number) => ({
      ...{ _id, phase, progress: { outbox: { seq: 1, next, dueAt: at(s), open: [{ seq: 1, callback: next }] } } },
    })
    await collection.insertMany([
      ...Array.from({ length: 200 }, (_, i) => due(`a${i}`, 'A', 'onMoved', 1)),
      due('z', 'Z', 'onTimeout', 60),
      due('b', 'B', 'onMoved', 30),
      due('parked', 'Z', 'onParked', -1e9),
    ])
    const of = {
      ...{ collection: collection as never, progress: 'progress', phases: ['A', 'B', 'Z'] },
      callbacks: ['onMoved', 'onParked', 'onTimeout'] as const,
    }
    expect(
      (await dueOutboxes(of, { now: new Date() }, 3, { kind: 'untried' })).slice(0, 2).map(({ id }) => id),
    ).toEqual(['z', 'b'])
    const sort = { 'progress.outbox.dueAt': 1 } as const
    const found = collection.find(outboxDue(of, { now: new Date() }) as never, { hint: index, limit: 3, sort })
    const { executionStats, queryPlanner } = (await found.explain('executionStats')) as Document
    expect(JSON.stringify(queryPlanner.winningPlan)).not.toContain('"SORT"')
    expect(executionStats.totalKeysExamined).toBeLessThan(20)
  })
})
