import { afterEach, describe, expect, jest, test } from '@jest/globals'
import type { Collection } from 'mongodb'
import { flowOf, lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import { runState, TRIGGER_RULES, triggered } from '../../src/phases/flows/tasks.js'
import type { TaskState } from '../../src/phases/index.js'
import { backDate, LifecycleKit } from '../../src/testing/index.js'
import { useDatabase } from '../support/database.js'

jest.setTimeout(60_000)

interface Night {
  _id: string
  day: string
  fails?: string[]
  parks?: string[]
}

const spec = {
  name: 'nightly',
  collection: 'Nightly',
  tasks: {
    report: { after: ['clean', 'train'], when: 'allDone' },
    extract: {},
    clean: { after: ['extract'] },
    train: { after: ['clean'] },
    alert: { after: ['extract', 'clean', 'train'], when: 'oneFailed' },
  },
} as const
const nightly = flowOf<Night>().define(spec)

/** Each task notes that it ran, with what it was given; those of `fails` and `parks` do. */
function handled() {
  const ran: string[] = []
  const given: Record<string, unknown> = {}
  const task: Parameters<typeof nightly.handle>[0]['clean'] = async (doc, step) => {
    const name = step.progress.parent!.key
    ran.push(name)
    given[name] = doc.results
    if (doc.run.parks?.includes(name) && step.progress.error === undefined) return step.park('look at me')
    return step.moveTo(doc.run.fails?.includes(name) ? 'Failed' : 'Succeeded', {
      set: { result: `${name} of ${doc.run.day}` },
    })
  }
  const lifecycles = nightly.handle({ extract: task, clean: task, train: task, report: task, alert: task })
  return { ran, given, lifecycles }
}

describe('a flow', () => {
  const database = useDatabase()
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  const runs = () => database.db.collection<{ _id: string } & Record<string, any>>('Nightly')
  const tasks = () => database.db.collection<{ _id: string } & Record<string, any>>('Nightly.tasks')

  async function ran(more: Partial<Night> = {}) {
    const { lifecycles, ...seen } = handled()
    const replica = new Replica({ db: database.db, lifecycles, logger: silentLogger })
    replicas.push(replica)
    await replica.prepare()
    await lifecycles[0].insert({ _id: 'n', day: 'monday', ...more })
    await replica.runOnce()
    return { replica, lifecycles, run: (await runs().findOne({ _id: 'n' }))!, ...seen }
  }

  test('runs each task once, after those before it, with what they left; what is skipped is not inserted', async () => {
    const { run, ran: order, given } = await ran()
    expect(run).toMatchObject({
      phase: 'Succeeded',
      tasks: { extract: 'succeeded', clean: 'succeeded', train: 'succeeded', report: 'succeeded', alert: 'skipped' },
    })
    expect(order).toEqual(['extract', 'clean', 'train', 'report'])
    expect(given['report']).toEqual({ clean: 'clean of monday', train: 'train of monday' })
    expect(await tasks().countDocuments()).toBe(4)
    expect(await tasks().findOne({ _id: 'nightly/n/clean' })).toMatchObject({
      phase: 'Succeeded',
      run: { _id: 'n', day: 'monday' },
    })
  })

  test('goes on by its rules when one fails: what needed it is skipped, what asks for failures begins', async () => {
    const { run, ran: order } = await ran({ fails: ['clean'] })
    expect(run['tasks']).toEqual({
      extract: 'succeeded',
      clean: 'failed',
      train: 'skipped',
      report: 'succeeded',
      alert: 'succeeded',
    })
    // Its last tasks have succeeded.
    expect(run['phase']).toBe('Succeeded')
    expect([...order].sort()).toEqual(['alert', 'clean', 'extract', 'report'])
  })

  test('has failed if a last task has', async () => {
    const { run } = await ran({ fails: ['report'] })
    expect(run['phase']).toBe('Failed')
  })

  test('waits for a person with a task that is parked, and goes on after that', async () => {
    const { run, replica, lifecycles } = await ran({ parks: ['clean'] })
    expect(run).toMatchObject({ phase: 'Running', progress: { waitingFor: '1 of 5 tasks are over; clean is open' } })
    await lifecycles[1].unpark('nightly/n/clean')
    await tasks().updateOne({ _id: 'nightly/n/clean' }, { $set: { 'run.parks': [] } })
    await replica.runOnce()
    expect(await runs().findOne({ _id: 'n' })).toMatchObject({ phase: 'Succeeded' })
  })

  test('counts a task that was removed by hand as failed, and does not begin it again', async () => {
    const { replica } = await ran({ parks: ['extract'] })
    await tasks().deleteMany({})
    await runs().updateOne({ _id: 'n' }, { $set: { lockedAt: new Date(0) } })
    await replica.runOnce()
    expect((await runs().findOne({ _id: 'n' }))!['tasks']).toMatchObject({
      extract: 'failed',
      clean: 'skipped',
      alert: 'succeeded',
    })
    expect(await tasks().countDocuments({ _id: 'nightly/n/extract' })).toBe(0)
  })

  test('whose list of children somebody has damaged goes on by their documents', async () => {
    const { replica, ran: order } = await ran({ parks: ['clean'] })
    await runs().updateOne({ _id: 'n' }, { $set: { 'progress.children': 5, lockedAt: new Date(0) } })
    await tasks().updateOne({ _id: 'nightly/n/clean' }, { $set: { lockedAt: new Date(0) } })
    await replica.runOnce()
    expect(await runs().findOne({ _id: 'n' })).toMatchObject({ phase: 'Succeeded' })
    expect(order.filter((name) => name === 'extract')).toHaveLength(1)
  })

  test('is removed with its tasks', async () => {
    const { replica, lifecycles } = await ran()
    await lifecycles[0].setState('n', 'Deleted')
    await replica.runOnce()
    expect(await runs().countDocuments()).toBe(0)
    expect(await tasks().countDocuments()).toBe(0)
  })

  test('survives a crash after each of its steps: each task has one document, and runs again at most once for it', async () => {
    const { ran: order, lifecycles } = handled()
    const kit = await LifecycleKit.open({ lifecycles, uri: database.uri })
    try {
      await kit.insert('nightly', { _id: 'n', phase: 'Running', day: 'monday' })
      for (const after of ['Running', 'extract', 'clean']) {
        await Promise.all([kit.crash(after), kit.untilIdle()])
        await kit.advance('31s')
      }
      await kit.untilPhase('nightly', 'n', 'Succeeded')
      expect(await kit.documents('nightly.task').countDocuments()).toBe(4)
      expect(order.filter((name) => name === 'train')).toHaveLength(1)
      expect(order.length).toBeLessThanOrEqual(6)
    } finally {
      await kit.close()
    }
  })

  describe('begun again from a task', () => {
    /** As the operation `redo` does it. */
    const redo = (names: unknown, set: Partial<Night> = {}, all: Collection<{ _id: string }> = runs()) =>
      all.updateOne(
        { _id: 'n' },
        { $set: { phase: 'Running', lockedAt: new Date(0), redo: names, ...set } as never, $unset: { lockedBy: 1 } },
      )

    test('that task and all that come after it run again, with the fields that the run has now; the others stay', async () => {
      const { replica, ran: order, given } = await ran({ fails: ['train'] })
      expect(order).toEqual(['extract', 'clean', 'train', 'report', 'alert'])
      await redo(['train'], { day: 'tuesday', fails: [] })
      await replica.runOnce()
      expect(order.slice(5)).toEqual(['train', 'report'])
      expect(given['report']).toEqual({ clean: 'clean of monday', train: 'train of tuesday' })
      const run = (await runs().findOne({ _id: 'n' }))!
      expect(run).toMatchObject({ phase: 'Succeeded', tasks: { train: 'succeeded', alert: 'skipped' } })
      expect(run).not.toHaveProperty('redo')
      expect((await tasks().distinct('_id')).sort()).toEqual(
        ['clean', 'extract', 'report', 'train'].map((name) => `nightly/n/${name}`),
      )
    })

    test('that task runs again, too, whose list a crash has kept from being stored', async () => {
      const { replica, ran: order } = await ran()
      await runs().updateOne({ _id: 'n' }, { $pull: { 'progress.children': { list: 'report' } } as never })
      await redo(['report'], { day: 'tuesday' })
      await replica.runOnce()
      expect(order).toEqual(['extract', 'clean', 'train', 'report', 'report'])
      expect(await tasks().findOne({ _id: 'nightly/n/report' })).toMatchObject({ result: 'report of tuesday' })
    })

    test('one that runs just then is waited for, and then runs again', async () => {
      const { replica, ran: order } = await ran({ parks: ['clean'] })
      const held = { lockedBy: 'another~1#1.1', lockedAt: new Date() }
      await tasks().updateOne({ _id: 'nightly/n/clean' }, { $set: held })
      await redo(['clean'], { parks: [] })
      await replica.runOnce()
      const reason = 'before tasks begin again: 1 child is left'
      expect(await runs().findOne({ _id: 'n' })).toMatchObject({ phase: 'Running', progress: { waitingFor: reason } })
      await tasks().updateOne(
        { _id: 'nightly/n/clean' },
        { $set: { lockedAt: new Date('9999-12-31') }, $unset: { lockedBy: 1 } },
      )
      await backDate(runs() as never, 60_000)
      await replica.runOnce()
      expect(await runs().findOne({ _id: 'n' })).toMatchObject({ phase: 'Succeeded' })
      expect(order).toEqual(['extract', 'clean', 'clean', 'train', 'report'])
    })

    test('and again from another one before the first tasks are gone: all that were meant run again', async () => {
      const { replica, ran: order } = await ran()
      const held = { lockedBy: 'another~1#1.1', lockedAt: new Date() }
      await tasks().updateOne({ _id: 'nightly/n/clean' }, { $set: held })
      await redo(['extract'], { day: 'tuesday' })
      await replica.runOnce()
      expect(await tasks().distinct('_id')).toEqual(['nightly/n/clean'])
      await redo(['report'], { day: 'wednesday' })
      await replica.runOnce()
      expect(await runs().findOne({ _id: 'n' })).toMatchObject({ phase: 'Running', redoing: ['extract', 'report'] })
      await tasks().updateOne({ _id: 'nightly/n/clean' }, { $set: { lockedAt: new Date(0) }, $unset: { lockedBy: 1 } })
      await backDate(runs() as never, 60_000)
      await replica.runOnce()
      const run = (await runs().findOne({ _id: 'n' }))!
      expect(run).toMatchObject({ phase: 'Succeeded', tasks: { extract: 'succeeded', clean: 'succeeded' } })
      expect(run).not.toHaveProperty('redoing')
      expect(order.slice(4)).toEqual(['extract', 'clean', 'train', 'report'])
      expect(await tasks().findOne({ _id: 'nightly/n/clean' })).toMatchObject({ result: 'clean of wednesday' })
    })

    test('what it has inserted itself is removed before it, and begins again with it; so it is with its run', async () => {
      const inner = lifecycleOf<{ _id: string; day: string }>().define({
        ...{ name: 'inner', collection: 'Inner', child: true },
        phases: { Working: { next: ['Worked'] }, Worked: { rest: true } },
      })
      const outer = flowOf<Night>().define({ name: 'outer', collection: 'Nightly', tasks: { build: {} } })
      const worked: string[] = []
      const lifecycles = [
        ...outer.handle({
          async build(doc, step) {
            await step.children([inner.child('x', { day: doc.run.day })])
            const ended = await step.childrenDone({ rule: 'allSucceeded' })
            return ended.done ? step.moveTo('Succeeded') : step.wait(ended.text)
          },
        }),
        inner.handle({
          async Working(doc, step) {
            worked.push(doc.day)
            return step.moveTo('Worked')
          },
        }),
      ]
      const replica = new Replica({ db: database.db, lifecycles: lifecycles as never, logger: silentLogger })
      replicas.push(replica)
      await runs().insertOne({ _id: 'n', phase: 'Running', day: 'monday' })
      await replica.runOnce()
      await redo(['build'], { day: 'tuesday' })
      await replica.runOnce()
      expect(await runs().findOne({ _id: 'n' })).toMatchObject({ phase: 'Succeeded' })
      expect(worked).toEqual(['monday', 'tuesday'])
      await runs().updateOne({ _id: 'n' }, { $set: { state: 'Deleted' } })
      await replica.runOnce()
      const left = [runs(), tasks(), database.db.collection('Inner')].map((all) => all.countDocuments())
      expect(await Promise.all(left)).toEqual([0, 0, 0])
    })

    test.each([
      ['a name', 'clean'],
      ['an unknown task', ['clean', 'cleen']],
      ['a number', [1]],
    ])('%s instead of a list of its tasks waits for a person', async (_what, names) => {
      const { replica, lifecycles } = await ran()
      await redo(names)
      await replica.runOnce()
      const run = (await runs().findOne({ _id: 'n' }))!
      expect(run['progress'].error.message).toMatch(
        /^redo: expected a list of its tasks \(extract, clean, train, report, alert\), got /,
      )
      expect(await tasks().countDocuments()).toBe(4)
      await runs().updateOne({ _id: 'n' }, { $set: { redo: [] } })
      await lifecycles[0].unpark('n')
      await replica.runOnce()
      expect(await runs().findOne({ _id: 'n' })).toMatchObject({ phase: 'Succeeded' })
    })

    test('after a crash at any of its steps, each task begins again once, and runs as often as it has crashed', async () => {
      const { ran: order, lifecycles } = handled()
      const kit = await LifecycleKit.open({ lifecycles, uri: database.uri })
      try {
        await kit.insert('nightly', { _id: 'n', phase: 'Running', day: 'monday' })
        await kit.untilPhase('nightly', 'n', 'Succeeded')
        order.length = 0
        await redo(['clean'], {}, kit.documents('nightly') as never)
        for (const after of ['Running', 'Running', 'Running', 'clean', 'train']) {
          await Promise.all([kit.crash(after), kit.untilIdle()])
          await kit.advance('31s')
        }
        await kit.untilPhase('nightly', 'n', 'Succeeded')
        expect(order).toEqual(['clean', 'clean', 'train', 'train', 'report'])
      } finally {
        await kit.close()
      }
    })
  })

  test('with tasks or rules that there are not does not compile', () => {
    const define = () => {
      // @ts-expect-error no such task
      flowOf<Night>().define({ name: 'x', collection: 'X', tasks: { a: {}, b: { after: ['c'] } } })
      // @ts-expect-error no such rule
      flowOf<Night>().define({ name: 'x', collection: 'X', tasks: { a: {}, b: { after: ['a'], when: 'most' } } })
      // @ts-expect-error a task has no handler
      nightly.handle({ extract: async (_doc, step) => step.moveTo('Failed') })
    }
    expect(define).toThrow()
  })

  test('is drawn', () => {
    expect(nightly.diagram()).toBe(`flowchart LR
  t0["extract"]
  t1["clean"]
  t2["train"]
  t3["report"]
  t4["alert"]
  t0 --> t1
  t1 --> t2
  t1 -->|allDone| t3
  t2 -->|allDone| t3
  t0 -->|oneFailed| t4
  t1 -->|oneFailed| t4
  t2 -->|oneFailed| t4
`)
  })

  test.each<[string, object, RegExp]>([
    ['a circle', { a: { after: ['c'] }, b: { after: ['a'] }, c: { after: ['b'] } }, /in a circle: a -> c -> b -> a/],
    ['a task after itself', { a: { after: ['a'] } }, /in a circle: a -> a/],
    [
      'an unknown task',
      { extract: {}, b: { after: ['extrat'] } },
      /unknown task "extrat" \(did you mean 'extract'\?\)/,
    ],
    ['an unknown rule', { a: {}, b: { after: ['a'], when: 'most' } }, /b'\.when: expected one of allSucceeded/],
    ['a rule for nothing', { a: { when: 'allDone' } }, /has a rule \(when\) but comes after no task/],
    ['a task twice', { a: {}, b: { after: ['a', 'a'] } }, /names a task twice/],
    ['an unknown key', { a: { afer: [] } }, /unknown key 'afer' \(did you mean 'after'\?\)/],
    ['no tasks', {}, /a task at least/],
    ['the name of an end', { Failed: {} }, /choose another name/],
    [
      'more than a hundred',
      Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`t${i}`, {}])),
      /at most 100, got 101/,
    ],
    ['a limit that is none', { a: { limits: [5] } }, /limits/],
    ['an empty name', { '': {} }, /expected a name of 1 to 200 characters/],
  ])('with %s is refused', (_what, given, message) => {
    expect(() => flowOf().define({ ...spec, tasks: given } as never)).toThrow(message)
  })

  test('says which of its name, collection and tasks is missing, all at once', () => {
    expect(() => flowOf().define(undefined as never)).toThrow(/expected an object with name, collection, tasks/)
    expect(() => flowOf().define({} as never)).toThrow(
      /lifecycle '\?' can't work:\n.*name must be a text, got undefined\n.*collection must be a text, got undefined\n.*tasks must be/,
    )
    expect(() => flowOf().define({ name: 5, collection: '', tasks: { a: {} } } as never)).toThrow(
      /name must be a text, got 5\n.*collection must be a text, got ""/,
    )
  })

  test('with settings that it has itself is refused', () => {
    const define = (settings: unknown) => () => flowOf().define({ ...spec, settings } as never)
    expect(define({ child: false, name: 'x' })).toThrow(/settings.name can't be set: .*\n.*settings.child can't be set/)
    expect(define('1h')).toThrow(/settings must be an object, got "1h"/)
  })
})

describe('a trigger rule', () => {
  const all: TaskState[] = ['waiting', 'open', 'parked', 'succeeded', 'failed', 'skipped']
  const over = new Set<TaskState>(['succeeded', 'failed', 'skipped'])

  test('never changes what it has said, however the rest ends, and always says something in the end', () => {
    for (const rule of TRIGGER_RULES)
      for (const a of all)
        for (const b of all) {
          const said = triggered(rule, [a, b])
          const ends = (state: TaskState) => (over.has(state) ? [state] : [...over])
          const later = new Set(ends(a).flatMap((one) => ends(b).map((other) => triggered(rule, [one, other]))))
          expect(later.has('waits')).toBe(false)
          if (said !== 'waits') expect([...later]).toEqual([said])
        }
  })

  test('a run is over when nothing is left to begin or to end', () => {
    const tasks = new Map([
      ['a', { after: [], when: 'allSucceeded' }],
      ['b', { after: ['a'], when: 'allSucceeded' }],
    ] as const)
    expect(runState(tasks, new Map())).toMatchObject({ begins: ['a'], isOver: false })
    expect(runState(tasks, new Map([['a', 'open']]))).toMatchObject({ begins: [], isOver: false })
    expect(runState(tasks, new Map([['a', 'failed']]))).toMatchObject({ begins: [], isOver: true, hasFailed: true })
    expect(runState(tasks, new Map([['a', 'succeeded']]))).toMatchObject({ begins: ['b'], isOver: false })
  })
})
