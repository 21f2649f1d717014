import { describe, expect, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { endDeliveries, type NotifyingLifecycle, outboxIn, removeOne, termsOf } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'

describe('the removal of a document that has something to tell', () => {
  const database = useDatabase()
  const jobs = () => database.db.collection<Document & { _id: string }>('Job')
  const stored = async (_id = 'j') => (await jobs().findOne({ _id })) as Record<string, any>
  const terms = termsOf(30_000)
  const notifying: NotifyingLifecycle = {
    lifecycle: 'job',
    callbacks: ['onMoved', 'onRemoved'],
    phases: ['First', 'Done'],
  }
  const withoutRemovals: NotifyingLifecycle = { ...notifying, callbacks: ['onMoved'] }
  const by = { by: 'ana', reason: null }
  const entry = (seq: number) => ({ seq, callback: 'onMoved', from: 'First', to: 'Done' })
  const withOutbox = (seq: number) => ({ seq, next: 'onMoved', dueAt: new Date(0), open: [entry(seq)] })
  const remove = (
    _id = 'j',
    lifecycle: NotifyingLifecycle | undefined = notifying,
    documents: Collection = jobs() as never,
  ) => removeOne(documents, terms, lifecycle, { _id }, by)

  test('ends its lease and all that it waits for, and keeps its own fields, its history and what is untold', async () => {
    const history = [{ outcome: 'wait', at: new Date(0) }]
    const progress = {
      waitingFor: 'rain',
      attempts: 2,
      question: {},
      error: {},
      step: 'x',
      claims: 1,
      since: new Date(0),
    }
    await jobs().insertOne({
      ...{ _id: 'j', phase: 'First', name: '$phase', state: 'x', lockedAt: new Date(), lockedBy: 'a~1#1.1', fence: 7 },
      progress: { ...progress, history, outbox: withOutbox(4) },
    })
    expect(await remove()).toBe('told')
    const { progress: now, ...fields } = await stored()
    expect(fields).toEqual({
      ...{ _id: 'j', phase: '$removed:job', name: '$phase', state: 'x', lockedAt: new Date(0), fence: 7 },
      updatedAt: expect.any(Date),
    })
    expect(now).toEqual({
      ...{ attempts: 2, claims: 1, since: new Date(0) },
      history: [history[0], expect.objectContaining({ outcome: 'remove', from: 'First', to: 'First', by: 'ana' })],
      outbox: {
        ...withOutbox(4),
        seq: 5,
        open: [entry(4), expect.objectContaining({ seq: 5, callback: 'onRemoved' })],
      },
    })
    expect(await remove()).toBeUndefined()
    expect(outboxIn(now).open).toHaveLength(2)
    expect((await stored())['progress'].outbox.seq).toBe(5)
  })

  test.each([
    ['a progress of its own', { phase: 'First', progress: 5 }],
    ['an array of phases', { phase: ['First'] }],
    ['a phase that the lifecycle lacks', { phase: 'Other' }],
    ['none', {}],
  ])('%s: it is deleted at once', async (_what, fields) => {
    await jobs().insertOne({ _id: 'j', ...fields })
    expect(await remove()).toBe('deleted')
    expect(await stored()).toBeNull()
  })

  test('what it gets to tell in between is not lost', async () => {
    await jobs().insertOne({ _id: 'j', phase: 'First' })
    const real = jobs() as unknown as Collection
    let writes = 0
    const beside = new Proxy(real, {
      get(target, name) {
        if (name !== 'deleteOne') return Reflect.get(target, name).bind?.(target) ?? Reflect.get(target, name)
        return async (...given: [never, never]) => {
          writes += 1
          if (writes === 1) await jobs().updateOne({ _id: 'j' }, { $set: { progress: { outbox: withOutbox(1) } } })
          return target.deleteOne(...given)
        }
      },
    })
    expect(await remove('j', withoutRemovals, beside)).toBe('told')
    expect(writes).toBe(1)
    expect(await stored()).toMatchObject({
      phase: '$removed:job',
      progress: { outbox: { open: [{ seq: 1 }, { seq: 2, callback: 'delete' }] } },
    })
  })

  test('with nothing to tell, and without callbacks, it is deleted by one command', async () => {
    await jobs().insertMany([
      { _id: 'j', phase: 'First', progress: { outbox: { seq: 3 } } },
      { _id: 'k', phase: 'First', progress: { outbox: withOutbox(1) } },
    ])
    expect(await remove('j', withoutRemovals)).toBe('deleted')
    const commands: string[] = []
    const only = new Proxy(jobs() as unknown as Collection, {
      get: (target, name) => {
        if (typeof name === 'string') commands.push(name)
        return Reflect.get(target, name).bind(target)
      },
    })
    expect(await removeOne(only, terms, undefined, { _id: 'k' }, by)).toBe('deleted')
    expect(commands).toEqual(['deleteOne'])
  })

  test('is deleted under the token of who has told it, in the phase of a removal, and not otherwise', async () => {
    const of = { collection: jobs() as never, progress: 'progress', callbacks: ['onRemoved'], phases: [] } as const
    await jobs().insertOne({ _id: 'j', phase: 'First' })
    await remove()
    await jobs().updateOne({ _id: 'j' }, { $set: { 'progress.outbox.by': 'b!1' } })
    const told = { id: 'j', seq: 1, removed: '$removed:job' }
    expect((await endDeliveries(of, [{ ...told, token: 'a!1' }])).matched).toBe(0)
    await jobs().updateOne({ _id: 'j' }, { $set: { phase: 'First' } })
    expect((await endDeliveries(of, [{ ...told, token: 'b!1' }])).matched).toBe(0)
    expect(await stored()).toMatchObject({ progress: { outbox: { open: [{ seq: 1 }] } } })
    await jobs().updateOne({ _id: 'j' }, { $set: { phase: '$removed:job' } })
    expect((await endDeliveries(of, [{ ...told, token: 'b!1' }])).matched).toBe(1)
    expect(await stored()).toBeNull()
  })
})
