import { describe, expect, jest, test } from '@jest/globals'
import { InvalidLifecycle, lifecycleOf, type Replica } from '../../src/index.js'
import { gate } from '../support/thing.js'
import { type Job, job, jobSpec, jobsWith, said, useJobs } from './callbacks-fixture.js'

jest.setTimeout(60_000)

/** One entry of an outbox, as it is stored. */
const entryOf = (seq: number) => ({
  ...{ seq, callback: 'onMoved', at: new Date(), from: 'Done', to: 'Done' },
  ...{ step: null, outcome: 'moveTo', reason: null, by: 'x' },
})

describe('callbacks', () => {
  const { database, jobs, stored, insert, prepared, pass, calls } = useJobs()

  test('are told of each move after it is stored, in order, with the document', async () => {
    const phases: string[] = []
    const { told, lifecycle } = jobsWith(async ({ id }) => void phases.push((await stored(id))['phase']))
    const replica = await prepared([lifecycle])
    await insert()
    await replica.runOnce()
    expect(said(told)).toEqual(['1 onMoved First>Second', '2 onMoved Second>Done'])
    expect(phases[1]).toBe('Done')
    expect(told[0]).toMatchObject({
      ...{ lifecycle: 'job', id: 'j', outcome: 'moveTo', reason: null, step: null, attempt: 1 },
      document: { _id: 'j' },
    })
    expect(told[1]!.at).toBeInstanceOf(Date)
    const { progress } = await stored()
    expect(progress.outbox).toEqual({ seq: 2 })
    expect(calls.map(({ outcome, callback }) => `${callback} ${outcome}`)).toEqual(['onMoved told', 'onMoved told'])
  })

  test('are told of what is parked, of a rule, and of a deadline: that it has passed, and that the document has moved', async () => {
    const { told, lifecycle } = jobsWith()
    const replica = await prepared([lifecycle])
    await insert('parked', { fails: true })
    await insert('late')
    await insert('ruled')
    await replica.runOnce()
    await jobs().updateOne({ _id: 'ruled' }, { $set: { state: 'Deleted' } })
    await replica.runOnce()
    await pass(3_600_000)
    await replica.runOnce()
    const of = (id: string) => told.filter((one) => one.id === id)
    expect(said(of('parked'))).toEqual(['1 onParked First>First'])
    expect(of('parked')[0]).toMatchObject({ outcome: 'park', reason: 'it fails' })
    expect(said(of('ruled')).slice(2)).toEqual(['3 onMoved Done>Gone'])
    expect(of('ruled')[2]).toMatchObject({ outcome: 'rule', by: 'rule', reason: 'owner wants Deleted' })
    expect(said(of('late')).slice(2)).toEqual(['3 onTimeout Done>Gone', '4 onMoved Done>Gone'])
    expect(of('late')[2]).toMatchObject({ outcome: 'deadline' })
  })

  test('are told of what a cancel parks though no step of it runs, by the person who cancelled it', async () => {
    const { told, lifecycle } = jobsWith()
    const replica = await prepared([lifecycle])
    await insert()
    expect(await lifecycle.cancel('j', { by: 'ana', reason: 'stuck', evenIdle: true })).toBe('stopped')
    await replica.runOnce()
    expect(told).toMatchObject([
      {
        callback: 'onParked',
        from: 'First',
        to: 'First',
        outcome: 'park',
        reason: 'cancelled by ana: stuck',
        by: 'ana',
      },
    ])
    expect((await stored())['progress'].outbox).not.toHaveProperty('open')
  })

  test('one that fails is called again after a pause, the next one waits for it, and after maxAttempts a person is needed', async () => {
    let broken = true
    const { told, lifecycle } = jobsWith(({ seq }) => {
      if (broken && seq === 1) throw new Error('the shop is away')
    })
    const replica = await prepared([lifecycle])
    await insert()
    await insert('other')
    for (let i = 0; i < 4; i += 1) {
      await replica.runOnce()
      await pass(30_000)
    }
    expect(said(told.filter(({ id }) => id === 'j'))).toEqual(Array(3).fill('1 onMoved First>Second'))
    expect(told.filter(({ id }) => id === 'j').map(({ attempt }) => attempt)).toEqual([1, 2, 3])
    const { phase, progress } = await stored()
    expect(phase).toBe('Done') // the document goes on
    expect(progress.outbox).toMatchObject({
      next: 'onMoved',
      tries: 3,
      error: 'the shop is away',
      open: [{ seq: 1 }, { seq: 2 }],
    })
    expect(progress.outbox.dueAt).toEqual(new Date('9999-12-31T00:00:00Z'))
    expect(calls.filter(({ id }) => id === 'j').map(({ outcome }) => outcome)).toEqual(['failed', 'failed', 'parked'])
    broken = false
    await replica.runOnce()
    expect(told.filter(({ id }) => id === 'j')).toHaveLength(3)
  })

  test('one that never returns is given up after callbackTimeout, with its signal, and costs no other document anything', async () => {
    const signals: AbortSignal[] = []
    const { told, lifecycle } = jobsWith(({ id }, { signal }) => {
      if (id !== 'hangs') return undefined
      signals.push(signal)
      return new Promise(() => undefined)
    })
    const replica = await prepared([lifecycle])
    await insert('hangs')
    await insert('fine')
    await replica.runOnce()
    expect(said(told.filter(({ id }) => id === 'fine'))).toHaveLength(2)
    expect(signals).toHaveLength(1)
    expect(signals[0]!.reason).toMatchObject({ name: 'CallbackTimeout', afterMs: 200 })
    expect((await stored('hangs'))['progress'].outbox).toMatchObject({
      tries: 1,
      error: expect.stringContaining('callbackTimeout of 200 ms'),
    })
    expect((await stored('hangs'))['progress'].outbox).not.toHaveProperty('by')
  })

  test('one that keeps the event loop to itself costs no other its time', async () => {
    const asked = gate()
    const { told, lifecycle } = jobsWith(async ({ id, to }) => {
      if (to !== 'Second') return
      if (id === 'blocks') {
        await asked.wait
        const untilMs = performance.now() + 500
        while (performance.now() < untilMs);
      } else {
        const answer = database.db.command({ ping: 1 })
        asked.open()
        await answer // it comes while nobody can read it
      }
    })
    const replica = await prepared([lifecycle])
    await insert('blocks')
    await insert('asks')
    await replica.runOnce()
    expect(told.map(({ id, to, attempt }) => `${id} ${to} ${attempt}`).sort()).toEqual([
      ...['asks Done 1', 'asks Second 1', 'blocks Done 1', 'blocks Second 1'],
    ])
    expect(calls.map(({ outcome }) => outcome)).toEqual(['told', 'told', 'told', 'told'])
  })

  test('no more are called at once than there are places', async () => {
    const few = lifecycleOf<Job>().define({
      ...{ ...jobSpec, callbacks: ['onMoved'], callbackTimeout: '20s', concurrency: 2 },
    } as never) as unknown as typeof job
    const seen = { now: 0, most: 0 }
    const { told, lifecycle } = jobsWith(async () => {
      seen.now += 1
      seen.most = Math.max(seen.most, seen.now)
      await new Promise(setImmediate)
      seen.now -= 1
    }, few)
    const one = await prepared([lifecycle])
    await Promise.all(Array.from({ length: 60 }, (_, i) => insert(`j${i}`)))
    await one.runOnce()
    expect(told).toHaveLength(120)
    expect(seen.most).toBe(2)
  })

  test('what a crash left behind is told by another replica: what nobody took, and what was being told', async () => {
    const { lifecycle } = jobsWith()
    const first = await prepared([lifecycle])
    await insert()
    await first.runOnce()
    const left = { seq: 3, open: [entryOf(3)], next: 'onMoved', by: 'dead!1', tries: 1 }
    await jobs().updateOne(
      { _id: 'j' },
      { $set: { 'progress.outbox': { ...left, dueAt: new Date(Date.now() + 5_000) } } },
    )
    const { told, lifecycle: own } = jobsWith()
    const second = await prepared([own])
    await second.runOnce()
    expect(told).toEqual([]) // its lease goes on
    await pass(10_000)
    await second.runOnce()
    expect(told).toMatchObject([{ seq: 3, attempt: 2 }])
  })

  test('what an older replica has in hand, with its token, is its own until it lets go; what follows is told by this one', async () => {
    const { told, lifecycle } = jobsWith()
    const replica = await prepared([lifecycle])
    const outbox = { seq: 4, open: [entryOf(3), entryOf(4)], next: 'onMoved', by: 'older~a1!7', tries: 1 }
    const dueAt = new Date(Date.now() + 40_000)
    await jobs().insertOne({ _id: 'j', phase: 'Done', progress: { outbox: { ...outbox, dueAt } } } as never)
    await replica.runOnce()
    expect(told).toEqual([])
    expect((await stored())['progress'].outbox).toEqual({ ...outbox, dueAt })
    // As it takes out what it has told, and goes on under its token.
    const more = { open: [entryOf(4)], dueAt: new Date(Date.now() + 40_000) }
    await jobs().updateOne({ _id: 'j' }, { $set: { 'progress.outbox': { ...outbox, ...more } } })
    await replica.runOnce()
    expect(told).toEqual([])
    const left = { seq: 4, open: [entryOf(4)], next: 'onMoved', dueAt: new Date() }
    await jobs().updateOne({ _id: 'j' }, { $set: { 'progress.outbox': left } })
    await replica.runOnce()
    expect(told).toMatchObject([{ seq: 4, attempt: 1 }])
    expect((await stored())['progress'].outbox).toEqual({ seq: 4 })
  })

  test('a call that ends after its outbox was taken from it takes nothing out, and the next one is not called', async () => {
    const { told, lifecycle } = jobsWith(async ({ seq }) => {
      if (seq !== 3) return
      await jobs().updateOne({ _id: 'j' }, { $set: { 'progress.outbox.by': 'other~b2!1' } })
    })
    const replica = await prepared([lifecycle])
    const outbox = { seq: 4, open: [entryOf(3), entryOf(4)], next: 'onMoved', dueAt: new Date(0) }
    await jobs().insertOne({ _id: 'j', phase: 'Done', progress: { outbox } } as never)
    await replica.runOnce()
    expect(told.map(({ seq }) => seq)).toEqual([3])
    expect((await stored())['progress'].outbox).toMatchObject({ by: 'other~b2!1', open: [{ seq: 3 }, { seq: 4 }] })
  })

  test('more entries than one are told in their order, each after the one before was taken out, while other documents go on', async () => {
    const { told, lifecycle } = jobsWith(async ({ id, seq }) => {
      const { open } = (await stored(id))['progress'].outbox
      expect(open[0].seq).toBe(seq)
    })
    const replica = await prepared([lifecycle])
    const outboxOf = (count: number) => ({
      ...{ seq: count, next: 'onMoved', dueAt: new Date(0) },
      open: Array.from({ length: count }, (_, i) => entryOf(i + 1)),
    })
    await jobs().insertMany(
      [12, 3, 1].map((count) => ({ _id: `j${count}`, phase: 'Done', progress: { outbox: outboxOf(count) } })),
    )
    await replica.runOnce()
    for (const count of [12, 3, 1])
      expect(told.filter(({ id }) => id === `j${count}`).map(({ seq }) => seq)).toEqual(
        Array.from({ length: count }, (_, i) => i + 1),
      )
    expect(calls.every(({ outcome }) => outcome === 'told')).toBe(true)
  })

  test('a replica of a version without a callback leaves it to others, and stores nothing for it', async () => {
    const old = lifecycleOf<Job>().define({ ...jobSpec, callbacks: ['onParked'] }) as unknown as typeof job
    const fresh = jobsWith()
    const replicas: Replica[] = [await prepared([fresh.lifecycle])]
    await insert()
    await jobs().updateOne(
      { _id: 'j' },
      {
        $set: {
          phase: 'Second',
          progress: {
            outbox: {
              seq: 1,
              next: 'onMoved',
              dueAt: new Date(0),
              open: [{ seq: 1, callback: 'onMoved', from: 'First', to: 'Second' }],
            },
          },
        },
      },
    )
    const older = jobsWith(undefined, old)
    replicas.push(await prepared([older.lifecycle]))
    await replicas[1]!.runOnce() // moves it on, and knows no onMoved
    expect(older.told).toEqual([])
    expect((await stored())['progress'].outbox).toMatchObject({ next: 'onMoved', open: [{ seq: 1 }] })
    await replicas[0]!.runOnce()
    expect(said(fresh.told)).toEqual(['1 onMoved First>Second'])
  })

  test('a document with 100 entries untold waits, and goes on when they are told', async () => {
    const { told, lifecycle } = jobsWith()
    const replica = await prepared([lifecycle])
    const open = Array.from({ length: 100 }, (_, i) => ({ seq: i + 1, callback: 'onMoved', from: 'A', to: 'B' }))
    const outbox = { seq: 100, open, next: 'onMoved', dueAt: new Date('9999-12-31T00:00:00Z'), tries: 3, error: 'no' }
    await jobs().insertOne({ _id: 'j', phase: 'First', progress: { outbox } } as never)
    await replica.tick()
    await replica.idle()
    expect(await stored()).toMatchObject({ phase: 'First', progress: { waitingFor: '100 calls of its callbacks, no' } })
    await jobs().updateOne({ _id: 'j' }, { $set: { 'progress.outbox.dueAt': new Date(0), 'progress.outbox.tries': 0 } })
    await replica.runOnce()
    await pass(60_000)
    await replica.runOnce()
    expect(told.map(({ seq }) => seq)).toEqual(Array.from({ length: 102 }, (_, i) => i + 1))
    expect(await stored()).toMatchObject({ phase: 'Done' })
  })

  test('a document of a final phase is removed when its callbacks have been told', async () => {
    let isAway = true
    const { told, lifecycle } = jobsWith(({ to }) => {
      if (isAway && to === 'Gone') throw new Error('away')
    })
    const replica = await prepared([lifecycle])
    await insert()
    await replica.runOnce()
    await jobs().updateOne({ _id: 'j' }, { $set: { state: 'Deleted' } })
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Gone' })
    isAway = false
    await pass(30_000)
    await replica.runOnce()
    await pass(30_000)
    await replica.runOnce()
    expect(await stored()).toBeNull()
    expect(said(told).at(-1)).toBe('3 onMoved Done>Gone')
  })

  test('a lifecycle without callbacks stores nothing for them and has no index', async () => {
    const plain = lifecycleOf<Job>().define(jobSpec) as unknown as typeof job
    const { lifecycle } = jobsWith(undefined, plain)
    const replica = await prepared([lifecycle])
    await insert()
    await replica.runOnce()
    expect((await stored())['progress']).not.toHaveProperty('outbox')
    expect((await database.db.collection('Job').indexes()).map(({ key }) => Object.keys(key)[0])).toEqual([
      '_id',
      'phase',
      'state',
    ])
  })
})

describe('callbacks that are wrong', () => {
  const messageOf = (act: () => unknown) => {
    try {
      act()
    } catch (error) {
      expect(error).toBeInstanceOf(InvalidLifecycle)
      return (error as Error).message
    }
    throw new Error('expected it to throw')
  }
  const defined = (more: object) => lifecycleOf<Job>().define({ ...jobSpec, ...more } as never)

  test.each([
    [{ callbacks: ['onMooved'] }, /callbacks.*expected one of onMoved, onParked, onTimeout, onRemoved, got 'onMooved'/],
    [{ callbacks: 'onMoved' }, /callbacks.*expected a list of callbacks/],
    [{ callbacks: ['onMoved'], callbackTimeout: '5' }, /callbackTimeout.*expected a duration from 100ms to 1h/],
    [{ callbackTimeout: '5s' }, /callbackTimeout: expected callbacks too/],
  ])('in the definition: %j', (more, expected) => {
    expect(messageOf(() => defined(more))).toMatch(expected)
  })

  test('in handle', () => {
    const none = async () => undefined as never
    const handlers = { First: none, Second: none }
    expect(messageOf(() => job.handle(handlers, { onMoved: () => 1 }))).toMatch(
      /callback 'onParked' is missing; add \{ onParked/,
    )
    expect(
      messageOf(() =>
        lifecycleOf<Job>()
          .define(jobSpec)
          .handle(handlers, { onMoved: () => 1 }),
      ),
    ).toMatch(/callback 'onMoved' isn't declared; add it to callbacks/)
    expect(messageOf(() => job.handle(handlers, 5 as never))).toMatch(
      /expected an object with callbacks by name, got 5/,
    )
  })
})
