import { describe, expect, jest, test } from '@jest/globals'
import { lifecycleOf } from '../../src/index.js'
import { clientAt } from '../lock/fixture.js'
import { eventually } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { gate, ShiftedClock, SteppedClock } from '../support/thing.js'
import { type Job, useJobs } from './callbacks-fixture.js'

jest.setTimeout(60_000)

describe("callbacks and a step of the server's clock", () => {
  const { database, jobs, stored, insert, prepared } = useJobs()
  const lifecycle = lifecycleOf<Job>().define({
    name: 'job',
    collection: 'Job',
    phases: { First: { next: ['Second'] }, Second: { next: ['Done'] }, Done: { rest: true } },
    callbacks: ['onMoved'],
  })
  const jobsWith = (told: number[], each: () => unknown = () => undefined) =>
    lifecycle.handle(
      { First: async (_doc, step) => step.moveTo('Second'), Second: async (_doc, step) => step.moveTo('Done') },
      {
        async onMoved({ seq }) {
          told.push(seq)
          await each()
        },
      },
    )

  test.each(['before a look has found it', 'after it', 'when it is confirmed'])(
    'none is called beside itself: another replica, %s',
    async (when) => {
      const proxy = await TcpProxy.start(database.uri)
      const client = await clientAt(proxy.uri)
      const [first, second]: [number[], number[]] = [[], []]
      const goOn = gate()
      try {
        const clock = new ShiftedClock()
        const more = { db: client.db(database.db.databaseName), clock }
        const one = await prepared([jobsWith(first, () => goOn.wait)], more)
        const other = await prepared([jobsWith(second)], more)
        await other.runOnce()
        await insert()
        await one.tick()
        await eventually(async () => expect((await stored())['phase']).toBe('Done'))
        await eventually(() => expect(first).toEqual([1]))
        proxy.stepClock(600_000)
        if (when !== 'before a look has found it') await other.tick()
        if (when === 'when it is confirmed') {
          proxy.stepClock(61_000)
          clock.advance(61_000)
        }
        await other.runOnce()
        expect(second).toEqual(when === 'when it is confirmed' ? [1, 2] : [])
        goOn.open()
        await eventually(async () => expect((await stored())['progress'].outbox).toEqual({ seq: 2 }))
        expect([...first, ...second].filter((seq) => seq === 2)).toEqual([2])
      } finally {
        goOn.open()
        await client.close()
        await proxy.stop()
      }
    },
  )

  test('back: what a replica was about to tell that is gone is told after its lease, not after the step; who lives tells it alone', async () => {
    const proxy = await TcpProxy.start(database.uri)
    const client = await clientAt(proxy.uri)
    const [first, second]: [number[], number[]] = [[], []]
    const goOn = gate()
    try {
      const clock = new ShiftedClock()
      const more = { db: client.db(database.db.databaseName), clock }
      const one = await prepared([jobsWith(first, () => goOn.wait)], more)
      const other = await prepared([jobsWith(second)], more)
      await other.runOnce()
      await insert('lives')
      await one.tick()
      await eventually(() => expect(first).toEqual([1]))
      await eventually(async () => expect((await stored('lives'))['phase']).toBe('Done'))
      const { outbox } = (await stored('lives'))['progress']
      const gone = { ...outbox, by: 'gone~000000!1' }
      await jobs().insertOne({ _id: 'gone', phase: 'Done', progress: { outbox: gone } })
      proxy.stepClock(-600_000)
      await other.runOnce()
      expect(second).toEqual([])
      proxy.stepClock(35_000)
      clock.advance(35_000)
      await other.runOnce()
      expect(second).toEqual([])
      goOn.open()
      await eventually(async () => expect((await stored('lives'))['progress'].outbox).toEqual({ seq: 2 }))
      expect(first).toEqual([1, 2])
      proxy.stepClock(10_000)
      clock.advance(10_000)
      await other.runOnce()
      await eventually(() => expect(second).toEqual([1, 2]))
    } finally {
      goOn.open()
      await client.close()
      await proxy.stop()
    }
  })

  test.each([
    [4_000, 'is made', [1]],
    [6_000, 'is left for the next look, and counts as no try', []],
  ])('a call whose outbox took %i ms to be taken %s: its lease has to outlast it', async (ms, _what, expected) => {
    const client = await clientAt(database.uri, { monitorCommands: true })
    try {
      const clock = new SteppedClock()
      let isSlow = true
      client.on('commandStarted', ({ commandName, command }) => {
        if (!isSlow || commandName !== 'update' || !JSON.stringify(command).includes('outbox.by')) return
        isSlow = false
        clock.advance(ms)
      })
      const told: number[] = []
      const one = await prepared([jobsWith(told)], { db: client.db(database.db.databaseName), clock })
      const open = [{ seq: 1, callback: 'onMoved', at: new Date(), from: 'Second', to: 'Done' }]
      const outbox = { seq: 1, open, next: 'onMoved', dueAt: new Date(0) }
      await jobs().insertOne({ _id: 'j', phase: 'Done', progress: { outbox } })
      await one.tick()
      await one.idle()
      expect(isSlow).toBe(false)
      expect(told).toEqual(expected)
      if (told.length === 0) expect((await stored())['progress'].outbox).toMatchObject({ open, tries: 0 })
      await one.runOnce()
      expect(told).toEqual([1])
    } finally {
      await client.close()
    }
  })
})
