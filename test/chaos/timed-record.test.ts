import { expect, test } from '@jest/globals'
import { twoAtOnce } from '../../chaos/faults/orders.ts'
import { TimedRecord, wrongRuns, wrongSections } from '../../chaos/faults/timed-record.ts'
import { useDatabase } from '../support/database.js'

const database = useDatabase()
const section = (fence: number, enteredMs: number, leftMs?: number) => ({
  _id: String(fence),
  lock: 'x',
  fence,
  enteredAt: new Date(enteredMs),
  ...(leftMs !== undefined && { leftAt: new Date(leftMs) }),
})

test('two sections at once, and a fence that does not grow, are found', () => {
  expect(wrongSections([section(1, 0, 10), section(2, 10, 20), section(3, 30), section(4, 31, 40)])).toEqual([])
  expect(wrongSections([section(1, 0, 10), section(2, 9, 20)])).toEqual(['x: fence 2 entered while 1 was within'])
  expect(wrongSections([section(2, 0, 10), section(1, 20, 30)])).toEqual(['x: fence 1 entered after 2'])
})

test('two parcels of a tenant at once are found, whatever their fences are', () => {
  expect(twoAtOnce([section(3, 0, 10), section(2, 10, 20), section(1, 15)])).toEqual([
    'x: two at once at 1970-01-01T00:00:00.015Z',
  ])
  expect(twoAtOnce([section(3, 0), section(2, 10, 20), { ...section(1, 15), lock: 'y' }])).toEqual([])
})

test('a section that lost its lock says nothing of when it ended, and one that had lost it before it began is none', async () => {
  const record = new TimedRecord(database.db)
  let held = true
  await record.within(
    'x',
    1,
    () => held,
    async () => undefined,
  )
  await record.within(
    'x',
    2,
    () => held,
    async () => {
      held = false
    },
  )
  await record.within(
    'x',
    3,
    () => held,
    async () => undefined,
  )
  const sections = await record.allSections()
  expect(sections.map(({ fence, leftAt }) => [fence, leftAt !== undefined])).toEqual([
    [1, true],
    [2, false],
  ])
})

test('due times without a run, and runs that were not tried as often as they should be, are found', async () => {
  const run = (second: number, phase: string, lost?: number) => ({
    _id: `s@${second}`,
    schedule: 's',
    scheduledFor: new Date(second * 1_000),
    phase,
    ...(lost !== undefined && { lost }),
  })
  const runs = [run(2, 'Completed'), run(0, 'Completed'), run(4, 'Completed', 1), run(6, 'Skipped')]
  const tries = new Map([
    ['s@0', 1],
    ['s@2', 1],
    ['s@4', 2],
  ])
  expect(wrongRuns(runs, tries, 2_000)).toEqual([])
  const record = new TimedRecord(database.db)
  for (const id of ['s@0', 's@0', 's@8']) await record.tried(id)
  expect(wrongRuns([...runs, run(10, 'Running')], await record.triesByRun(), 2_000)).toEqual([
    's: no run, or two, before 1970-01-01T00:00:10.000Z',
    's@2: Completed without a try',
    's@0: tried 2 times, 0 of them lost',
    's@4: Completed without a try',
    's@10: still Running',
  ])
})
