import { describe, expect, test } from '@jest/globals'
import { PARKED_AT } from '../../src/lock/index.js'
import { idOf, ordersWith, packed, parcelsWith, useChildren } from './children-fixture.js'

describe('a cancel with evenIdle', () => {
  const { orders, parcels, stored, insert, prepared } = useChildren()
  const cancelled = { lockedAt: PARKED_AT, progress: { error: { message: 'cancelled by ana: stuck' } } }
  const stuck = { by: 'ana', reason: 'stuck' }

  async function waiting() {
    const { lifecycle } = ordersWith({ rule: 'allDone' })
    const parcelLifecycle = parcelsWith(async (doc, step) =>
      doc._id.endsWith('done') ? packed(doc, step) : step.wait('tape', { for: '1h' }),
    )
    const replica = await prepared([lifecycle, parcelLifecycle])
    await insert(['sleeps', 'done'])
    await insert(['sleeps'], 'other')
    await replica.runOnce()
    return lifecycle
  }

  test('goes on to the children that have not ended, but to no other document', async () => {
    const lifecycle = await waiting()
    const former = { lifecycle: 'order', id: 'o', key: 'former', list: 'Shipping', fence: 1 }
    const at = new Date()
    await parcels().insertMany([
      { _id: 'former', phase: 'Packing', lockedAt: at, progress: { parent: former } },
      {
        _id: 'of another lifecycle',
        phase: 'Elsewhere',
        lockedAt: at,
        progress: { parent: { ...former, fence: 9e15 } },
      },
    ])
    expect(await lifecycle.cancel('o', { ...stuck, evenIdle: true })).toBe('stopped')
    expect(await stored()).toMatchObject(cancelled)
    expect(await parcels().findOne({ _id: idOf('sleeps') })).toMatchObject(cancelled)
    const parked = await parcels()
      .find({ lockedAt: PARKED_AT }, { projection: { _id: 1 } })
      .toArray()
    expect(parked).toEqual([{ _id: idOf('sleeps') }])
    expect(await orders().findOne({ _id: 'other' })).not.toMatchObject({ lockedAt: PARKED_AT })
    expect(await lifecycle.cancel('o', { ...stuck, evenIdle: true })).toBe('notHeld')
  })

  test('asks a child that runs, also where the document itself was parked before', async () => {
    const lifecycle = await waiting()
    await orders().updateOne({ _id: 'o' }, { $set: { lockedAt: PARKED_AT } })
    await parcels().updateOne({ _id: idOf('sleeps') }, { $set: { lockedAt: new Date(), lockedBy: 'other~5f3a9c#7.1' } })
    expect(await lifecycle.cancel('o', { ...stuck, evenIdle: true })).toBe('asked')
    expect(await lifecycle.cancel('o', stuck)).toBe('notHeld')
  })

  test('leaves the children of a document alone that has ended', async () => {
    const lifecycle = await waiting()
    await orders().updateOne({ _id: 'o' }, { $set: { phase: 'Shipped', lockedAt: new Date(0) } })
    expect(await lifecycle.cancel('o', { ...stuck, evenIdle: true })).toBe('notHeld')
    expect(await parcels().countDocuments({ lockedAt: PARKED_AT })).toBe(0)
  })
})
