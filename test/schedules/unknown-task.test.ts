import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { checkDatabase, showDocument } from '../../src/operations/index.js'
import { replicaMetrics } from '../../src/telemetry/index.js'
import { takeCensuses } from '../support/census.js'
import { useDatabase } from '../support/database.js'
import { dueSchedule, dueSince, useSchedulers } from './support.js'

describe('a task that no replica knows', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()

  /** What a live replica says of itself. */
  const says = (knows: readonly string[] | undefined) =>
    database.db.collection<Document & { _id: string }>('phaselock.replicas').updateOne(
      { _id: 'other~1' },
      [
        {
          $set: {
            seenAt: '$$NOW',
            startedAt: '$$NOW',
            everyMs: 10_000,
            lifecycles: [{ name: 'schedules.runs', ...(knows && { knows: { $literal: knows } }) }],
          },
        },
      ],
      { upsert: true },
    )

  async function queued(knows: readonly string[] | undefined) {
    await says(knows)
    const one = scheduler(database.db, { tasks: { other: async () => 1 } })
    // Typed in the database: upsert would refuse it.
    const owner = scheduler(database.db)
    const due = await dueSchedule({ ...owner, replica: one.replica }, database.db, { task: 'wrok' })
    await one.replica.runOnce()
    const models = one.schedules.lifecycles.map(({ model }) => model)
    const system = { db: database.db, models }
    return { one, system, id: `s@${due.toISOString()}` }
  }
  const warned = ({ logger }: Awaited<ReturnType<typeof queued>>['one']) =>
    logger.lines.filter(({ message }) => message.includes("knows the task 'wrok'"))

  test('is told at its first run, once: in the log, by show, and by check', async () => {
    const { one, system, id } = await queued(['other'])
    expect(warned(one)).toHaveLength(1)
    expect(warned(one)[0]!.message).toBe(
      "schedule 's': no replica that runs knows the task 'wrok': its runs are Queued until one does; correct the name, or start a version that has it",
    )
    await dueSince(database.db, 's', 500)
    await one.replica.runOnce()
    expect(warned(one)).toHaveLength(1)
    const { explanation } = await showDocument(system, { id, lifecycle: 'schedules.runs' })
    expect(explanation).toMatch(
      /^Due.*, but no replica that runs knows its task 'wrok': correct the name in its schedule, or start a version that has it\.$/,
    )
    const findings = (await checkDatabase(system)).flatMap((result) => result.findings)
    expect(findings).toContainEqual(
      expect.objectContaining({ about: 'task wrok', problem: 'no replica that runs knows it; 2 runs wait for one' }),
    )
  })

  test.each([
    ['another replica knows it', ['wrok']],
    ['another replica does not say what it knows', undefined],
  ] as const)('is not told of where %s', async (_what, knows) => {
    const { one, system, id } = await queued(knows)
    expect(warned(one)).toEqual([])
    const { explanation } = await showDocument(system, { id, lifecycle: 'schedules.runs' })
    expect(explanation).not.toContain('no replica that runs knows its task')
    const findings = (await checkDatabase(system)).flatMap((result) => result.findings)
    expect(findings.filter(({ about }) => about === 'task wrok')).toEqual([])
  })

  test('by the metrics that the page on schedules names: its runs are due, and since when', async () => {
    const { one } = await queued(['other'])
    await dueSince(database.db, 's', 200_000)
    await one.replica.runOnce()
    await database.db
      .collection('runs')
      .updateMany({}, [{ $set: { createdAt: { $subtract: ['$createdAt', 200_000] } } }])
    await takeCensuses(database.db, one.replica)
    const { registry } = replicaMetrics({
      db: database.db,
      lifecycles: one.schedules.lifecycles,
      processMetrics: false,
    })
    const lines = (await registry.metrics()).split('\n')
    const value = (metric: string) =>
      Number(
        lines
          .find((line) => line.startsWith(`phaselock_${metric}{lifecycle="schedules.runs",phase="Queued"} `))
          ?.split(' ')
          .at(-1),
      )
    expect(value('documents_due')).toBe(2)
    expect(value('oldest_due_seconds')).toBeGreaterThan(199)
  })

  test('a replica says which tasks it knows', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    await one.replica.start()
    const stored = () => database.db.collection<Document & { _id: string }>('phaselock.replicas').findOne({})
    for (let i = 0; i < 100 && !(await stored()); i += 1) await new Promise((resolve) => setTimeout(resolve, 100))
    const runs = (await stored())!['lifecycles'].find(({ name }: { name: string }) => name === 'schedules.runs')
    expect(runs.knows).toEqual(['work'])
  })
})
