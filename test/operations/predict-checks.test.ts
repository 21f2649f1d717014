import { describe, expect, test } from '@jest/globals'
import { type PredictedAction, predict, type System } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { thing, things } from '../support/thing.js'

describe('a prediction makes the checks of the action', () => {
  const database = useDatabase()
  const predicted = async (request: PredictedAction, phase = 'Creating') => {
    const system: System = { db: database.db, models: [thing.model], doorbell: 'off' }
    await things(database.db).insertOne({ _id: 'a', phase })
    return predict(system, { ...request, ref: { id: 'a' } })
  }

  test.each<[string, PredictedAction]>([
    ['Odd', { action: 'set-state', state: 'Odd' }],
    ['with a handler', { action: 'redo', phase: 'Odd' }],
    ['with a handler', { action: 'redo', phase: 'Deleted' }],
    ["isn't final", { action: 'migrate', phase: 'Odd' }],
    ["isn't final", { action: 'migrate', phase: 'Deleted' }],
  ])('%s: %p', async (problem, request) => {
    const error = await predicted(request).catch((thrown) => thrown)
    expect(error).toMatchObject({ name: 'UsageError', message: expect.stringContaining(problem) })
  })

  test('an unknown state with force is stored', async () => {
    expect(await predicted({ action: 'set-state', state: 'Odd', force: true })).toMatchObject({ would: 'change' })
  })

  test('a redo where it is needs a phase with a handler', async () => {
    expect(await predicted({ action: 'redo' }, 'Created')).toMatchObject({
      would: 'refused',
      text: expect.stringContaining('its phase has no handler'),
    })
  })
})
