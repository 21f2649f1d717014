import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { Replica } from 'phaselock'
import { LIFECYCLES_COLLECTION } from '../../src/lock/index.js'
import { lifecycleOf, modelRegistered } from '../../src/phases/index.js'
import { useDatabase } from '../support/database.js'

const order = lifecycleOf<{ _id: string; state?: string }>().define({
  name: 'order',
  collection: 'Order',
  phases: {
    Packing: { next: ['Packed'], deadline: { after: '5m', moveTo: 'Packed', setState: 'Late' } },
    Packed: { rest: true, entry: true },
    Cancelling: { next: ['Gone'] },
    Gone: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Cancelled', from: 'any', moveTo: 'Cancelling' }],
  renamed: { Wrapping: 'Packing' },
  lockTimeout: '45s',
  legacyWriters: true,
  maxAttempts: 3,
  maxClaims: 4,
  fields: { progress: 'work' },
})

describe('what a replica registers of its lifecycles', () => {
  const database = useDatabase()
  const entries = () => database.db.collection<Document & { _id: string }>(LIFECYCLES_COLLECTION)
  const entry = async () => (await entries().findOne({ _id: 'order' }))!
  const starts = async (definition: typeof order) => {
    const handler = async () => undefined as never
    const lifecycle = definition.handle({ Packing: handler, Cancelling: handler })
    const replica = new Replica({ db: database.db, lifecycles: [lifecycle] })
    await replica.prepare()
    await replica.stop()
  }

  test('is all that reading and changing its documents takes', async () => {
    await starts(order)
    const { model, onlyNamed } = modelRegistered(await entry())!
    const { backOff: _, concurrency: __, stepTimeoutMs: ___, reads: ____, ...settings } = order.model.settings
    expect({ ...model, settings: undefined }).toEqual({ ...order.model, settings: undefined })
    expect([...model.phases.keys()]).toEqual([...order.model.phases.keys()])
    expect(model.settings).toMatchObject(settings)
    expect(onlyNamed).toEqual([])
  })

  test('moveTo is stored as goTo, in the order of its fields, so that an older version sees the same definition', async () => {
    await starts(order)
    const { graph, rules } = await entry()
    expect(JSON.stringify(graph[0].deadline)).toBe('{"afterMs":300000,"goTo":"Packed","setState":"Late"}')
    expect(JSON.stringify(rules)).toBe('[{"when":"Cancelled","from":["Packing","Packed"],"goTo":"Cancelling"}]')
    expect(Object.keys(graph[0])).toEqual(['name', 'kind', 'next', 'deadline', 'keepForMs', 'entry'])
  })

  test('an older version only names phases, and takes nothing away that a newer one has stored', async () => {
    const older = {
      $set: { collection: 'Order', phases: ['Packing', 'Packed'] },
      $setOnInsert: { lockTimeout: 30_000 },
    }
    await entries().updateOne({ _id: 'order' }, older, { upsert: true })
    const named = modelRegistered(await entry())!
    expect(named).toMatchObject({
      onlyNamed: ['Packing', 'Packed'],
      model: { entries: ['Packing'], collection: 'Order' },
    })
    expect(named.model.settings.progress).toBe('progress')

    await starts(order)
    await entries().updateOne({ _id: 'order' }, [
      { $set: { phases: ['Packing', 'Packed', 'Sending'], fromLater: { a: 1 } } },
    ])
    const both = modelRegistered(await entry())!
    expect(both.onlyNamed).toEqual(['Sending'])
    expect(both.model.phases.get('Packed')).toMatchObject({ kind: 'resting' })
    expect(both.model.settings.progress).toBe('work')

    await starts(order)
    expect(await entry()).toMatchObject({ fromLater: { a: 1 }, lockTimeout: 30_000, definedLockTimeout: 45_000 })
    expect(modelRegistered(await entry())!.onlyNamed).toEqual([])
  })

  test('what a person has broken counts as absent', async () => {
    await starts(order)
    await entries().updateOne({ _id: 'order' }, { $set: { rules: 'none', graph: [{ name: 7 }], maxClaims: [] } })
    const { model, onlyNamed } = modelRegistered(await entry())!
    expect(model).toMatchObject({ rules: [], settings: { maxClaims: 10, maxAttempts: 3 } })
    expect(onlyNamed).toEqual(['Packing', 'Packed', 'Cancelling', 'Gone'])
    expect(modelRegistered({ _id: 'order', collection: 7 })).toBeUndefined()
    expect(modelRegistered({ _id: 5, collection: 'Order' })).toBeUndefined()
  })
})
