import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { EndlessSteps, InvalidLifecycle, lifecycleOf, type Replica } from '../../src/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { backDate, recordingLogger, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

const AFTER = 40

describe('steps without end', () => {
  const database = useDatabase()
  const read = async (id = 'a') => (await things(database.db).findOne({ _id: id })) as Document
  const put = (...ids: string[]) => things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))
  const settings = { backOff: { afterSteps: AFTER } }
  const thrownBy = (replica: Replica) =>
    replica.runOnce().then(
      () => undefined,
      (error: unknown) => error,
    )

  test('again and again to the same step: runOnce names it, one line warns, the history keeps one entry, the others go on', async () => {
    const logger = recordingLogger()
    const lifecycle = thingWith(
      async (doc, step) => (doc._id === 'a' ? step.again({ step: 'next' }) : step.moveTo('Created')),
      thingOf(settings),
    )
    const replica = replicaOf(database.db, lifecycle, { logger })
    await put('a', 'b')
    const error = await thrownBy(replica)
    expect(error).toBeInstanceOf(EndlessSteps)
    expect(error).toMatchObject({ lifecycle: 'thing', id: 'a', phase: 'Creating', steps: AFTER })
    expect(String(error)).toMatch(
      /^EndlessSteps: thing a has taken 40 steps in a row .* raise the lifecycle's backOff.afterSteps$/,
    )
    expect(await read('b')).toMatchObject({ phase: 'Created' })
    const { progress, lockedBy } = await read()
    expect(lockedBy).toBeUndefined()
    expect(progress).toMatchObject({ step: 'next', steps: AFTER })
    expect(progress.history).toMatchObject([
      { outcome: 'again', step: null, count: 1, reason: null },
      { outcome: 'again', step: 'next', count: AFTER - 2, reason: null },
      { outcome: 'again', step: 'next', count: 1, reason: 'many steps in a row without a new phase' },
    ])
    expect(progress.resumeAt.getTime() - progress.history[2].at.getTime()).toBe(100)
    const warnings = logger.lines.filter(({ level }) => level === 'warn')
    expect(warnings).toMatchObject([
      { message: expect.stringMatching(/^thing a has taken 40 steps.*it pauses between its steps$/) },
    ])
    // Each further one after a pause, which doubles when it has taken as many again.
    for (let i = 0; i < AFTER; i += 1) {
      await backDate(database.db, 'a', 60_000)
      expect(await thrownBy(replica)).toMatchObject({ id: 'a', steps: AFTER + i + 1 })
    }
    const later = (await read())['progress']
    expect(later.history).toHaveLength(3)
    expect(later.history[2]).toMatchObject({ count: AFTER + 1 })
    expect(later.resumeAt.getTime() - later.history[2].at.getTime()).toBe(200)
    expect(logger.lines.filter(({ level }) => level === 'warn')).toHaveLength(2)
  })

  test('phases in a circle: the same', async () => {
    const logger = recordingLogger()
    const circle = lifecycleOf<{ _id: string }>().define({
      name: 'thing',
      collection: 'Thing',
      ...settings,
      phases: {
        Creating: { next: ['Checking'] },
        Checking: { next: ['Creating', 'Created'] },
        Created: { rest: true },
      },
    })
    const replica = replicaOf(
      database.db,
      circle.handle({
        Creating: async (_doc, step) => step.moveTo('Checking'),
        Checking: async (_doc, step) => step.moveTo('Creating'),
      }),
      { logger },
    )
    await put('a')
    expect(await thrownBy(replica)).toMatchObject({ name: 'EndlessSteps', id: 'a', steps: AFTER })
    const { progress } = await read()
    expect(progress.resumeAt.getTime() - progress.history.at(-1).at.getTime()).toBe(100)
    expect(logger.lines.filter(({ level }) => level === 'warn')).toHaveLength(1)
  })

  test('a long document gets there, and keeps no count; one that waits, or whose phases are new, is never slowed down', async () => {
    const logger = recordingLogger()
    const lifecycle = thingWith(async (doc, step) => {
      const n = (doc.n ?? 0) + 1
      if (doc._id === 'waits' && n % 10 === 0) return step.wait('rain', { set: { n } })
      return n === AFTER + 5 ? step.moveTo('Created', { set: { n } }) : step.again({ step: 'page', set: { n } })
    }, thingOf(settings))
    const replica = replicaOf(database.db, lifecycle, { logger })
    await put('long', 'waits')
    await replica.start()
    await eventually(async () => expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(2))
    await replica.stop()
    for (const id of ['long', 'waits']) expect((await read(id))['progress']).not.toHaveProperty('steps')
    expect(logger.lines.filter(({ level }) => level === 'warn').map(({ fields }) => fields)).toMatchObject([
      { id: 'long' },
    ])
  })

  test('steps of different names are entries of their own', async () => {
    const lifecycle = thingWith(async (_doc, step) => {
      if (step.name === undefined) return step.again({ step: 'one' })
      return step.name === 'one' ? step.again({ step: 'two' }) : step.moveTo('Created')
    })
    await put('a')
    await replicaOf(database.db, lifecycle).runOnce()
    const { history } = (await read())['progress']
    expect(history.map(({ step, count }: Document) => [step, count])).toEqual([
      [null, 1],
      ['one', 1],
      ['two', 1],
    ])
  })

  test('the setting is checked', () => {
    expect(() => thingOf({ backOff: { afterSteps: 0 } })).toThrow(InvalidLifecycle)
    expect(() => thingOf({ backOff: { afterSteps: 0 } })).toThrow(
      /backOff.afterSteps: expected a whole number from 10 to/,
    )
  })
})
