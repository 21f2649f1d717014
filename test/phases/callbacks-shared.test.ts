import { describe, expect, jest, test } from '@jest/globals'
import { lifecycleOf } from '../../src/index.js'
import { type Job, jobsWith, said, useJobs } from './callbacks-fixture.js'

jest.setTimeout(60_000)

describe('callbacks of two lifecycles that share a collection', () => {
  const { database, stored, insert, jobs, prepared } = useJobs()

  const errand = lifecycleOf<Job>().define({
    name: 'errand',
    collection: 'Job',
    phases: { Running: { next: ['Back'] }, Back: { rest: true }, Lost: { rest: true } },
    rules: [{ when: 'Deleted', from: ['Back'], goTo: 'Lost' }],
    callbacks: ['onMoved'],
  })

  test('each is told of its own documents', async () => {
    const heard: unknown[] = []
    const { told, lifecycle } = jobsWith()
    const errands = errand.handle(
      { Running: async (_doc, step) => step.moveTo('Back') },
      { onMoved: ({ id, from, to }) => void heard.push(`${id} ${from}>${to}`) },
    )
    const replica = await prepared([lifecycle, errands])
    await insert('j')
    await database.db.collection('Job').insertOne({ _id: 'e' as never, phase: 'Running' })
    await replica.runOnce()
    await jobs().updateMany({}, { $set: { state: 'Deleted' } })
    await replica.runOnce()
    expect([heard, said(told)]).toEqual([
      ['e Running>Back', 'e Back>Lost'],
      ['1 onMoved First>Second', '2 onMoved Second>Done', '3 onMoved Done>Gone'],
    ])
    expect((await stored('e'))['progress'].outbox).toEqual({ seq: 2 })
  })
})
