import { expect, test } from '@jest/globals'
import { useDatabase } from '../support/database.js'
import { dueSchedule, passForRuns, useSchedulers } from './support.js'

const database = useDatabase()
const scheduler = useSchedulers()

test('whatever a task throws or returns, its run ends and runs once', async () => {
  class Hostile extends Error {
    override get message(): string {
      throw new Error('no message')
    }
  }
  const refuses = () => {
    throw new Error('not to be looked at')
  }
  const hostile: Record<string, unknown> = {
    bare: Object.create(null),
    symbol: Symbol('s'),
    getter: new Hostile(),
    name: Object.assign(new Error('named'), { name: Symbol('s') }),
    stack: Object.assign(new Error('stacked'), { stack: 5 }),
    text: { toString: refuses },
    proxy: new Proxy({}, { getPrototypeOf: refuses }),
    nothing: undefined,
    object: { status: 503 },
  }
  const ran: string[] = []
  const tasks: Record<string, object> = {
    returns: {
      run: async (_args: unknown, run: { log(message: unknown, fields?: unknown): void }) => {
        ran.push('returns')
        run.log(Object.create(null))
        run.log('no luck', { error: new TypeError('fetch failed') })
        return { 'a\0b': 1 }
      },
    },
  }
  for (const [name, thrown] of Object.entries(hostile)) {
    tasks[name] = {
      run: async () => {
        ran.push(name)
        throw thrown
      },
      onFailure: async () => {
        throw thrown
      },
    }
  }
  const one = scheduler(database.db, { tasks: tasks as never })
  for (const name of Object.keys(tasks)) await dueSchedule(one, database.db, { task: name }, name)
  await one.replica.runOnce()
  await passForRuns(database.db, 60_000)
  await one.replica.runOnce()
  expect(ran.sort()).toEqual(Object.keys(tasks).sort())
  for (const name of Object.keys(hostile)) {
    const [run] = await one.schedules.runs(name)
    expect(run).toMatchObject({
      phase: 'Failed',
      error: { message: expect.any(String) },
      callbackError: { message: expect.any(String) },
    })
  }
  expect(await one.schedules.runs('object')).toMatchObject([{ error: { message: '{"status":503}' } }])
  const [returned] = await one.schedules.runs('returns')
  expect(returned).toMatchObject({
    phase: 'Completed',
    log: [{ message: '{}' }, { message: 'no luck', fields: { error: 'TypeError: fetch failed' } }],
  })
  expect(returned!.result).toBeUndefined()
})
