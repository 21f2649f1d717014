import { describe, expect, jest, test } from '@jest/globals'
import { lifecycleOf, type Step } from '../../src/index.js'
import {
  label,
  labelSpec,
  type Parcel,
  packed,
  parcel,
  parcelSpec,
  parcelsWith,
  useChildren,
} from './children-fixture.js'

jest.setTimeout(60_000)

interface Order {
  _id: string
  state?: 'Deleted'
}
const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  phases: {
    Shipping: { next: ['Shipped'] },
    Shipped: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
})

describe('children are removed before their parent', () => {
  const { database, orders, parcels, stored, insert, prepared, pass } = useChildren()
  const labels = () => database.db.collection<{ _id: string }>('Label')
  const events: string[] = []

  const lifecycles = (
    Printing = async (_doc: unknown, step: { moveTo(phase: 'Printed'): never }) => step.moveTo('Printed'),
  ) => [
    order.handle({
      async Shipping(_doc, step) {
        await step.children([
          parcel.child('left', { weight: 1 }),
          parcel.child('right', { weight: 1 }),
          label.child('left', { weight: 1 }),
        ])
        const ended = await step.childrenDone({ rule: 'allDone' })
        return ended.done ? step.moveTo('Shipped') : step.wait(ended.text)
      },
      async Deleting(_doc, step) {
        const gone = await step.removeChildren()
        if (!gone.done) return step.wait(gone.text)
        events.push('order')
        return step.moveTo('Deleted')
      },
    }),
    label.handle({ Printing: Printing as never }),
  ]
  const deleting = parcel.handle({
    Packing: packed,
    async Deleting(doc, step) {
      events.push(doc._id)
      return step.moveTo('Deleted')
    },
  })

  test('each by its own lifecycle where that has a rule for it, the others outright; the parent goes last', async () => {
    events.length = 0
    const replica = await prepared([...lifecycles(), deleting])
    await insert([])
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipped' })
    await orders().updateOne({ _id: 'o' }, { $set: { state: 'Deleted' } })
    await replica.runOnce()
    await pass(1_000)
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Deleted' })
    expect(events).toHaveLength(3)
    expect(events.at(-1)).toBe('order')
    expect(await parcels().countDocuments()).toBe(0)
    expect(await labels().countDocuments()).toBe(0)
  })

  test('those too whose list a crash has kept from being stored, of lifecycles that others run as well', async () => {
    events.length = 0
    await (await prepared([deleting])).stop()
    const replica = await prepared(lifecycles())
    const parent = { lifecycle: 'order', id: 'o', list: 'Shipping' }
    await parcels().insertOne({
      _id: 'order/o/left',
      phase: 'Packed',
      progress: { parent: { ...parent, key: 'left' } },
    })
    await labels().insertOne({
      _id: 'order/o/l',
      phase: 'Printed',
      progress: { parent: { ...parent, key: 'l' } },
    } as never)
    await orders().insertOne({ _id: 'o', phase: 'Shipping', state: 'Deleted' })
    await replica.runOnce()
    expect(await labels().countDocuments()).toBe(0)
    expect(await stored()).toMatchObject({ phase: 'Deleting', progress: { waitingFor: '1 child is left' } })
    await (await prepared([deleting])).runOnce()
    await pass(60_000)
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Deleted' })
    expect(events).toEqual(['order/o/left', 'order'])
  })

  test('one that does not go keeps its parent, which says how many are left; a held one is not deleted', async () => {
    const replica = await prepared(lifecycles())
    await prepared([parcelsWith(async (_doc, step) => step.park('never'))])
    await insert([])
    await replica.runOnce()
    await labels().updateOne(
      {},
      { $set: { lockedBy: 'another~1#1.1', lockedAt: new Date(), phase: 'Printing' } as never },
    )
    await orders().updateOne({ _id: 'o' }, { $set: { state: 'Deleted', lockedAt: new Date(0) } })
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Deleting', progress: { waitingFor: '3 children are left' } })
    expect(await parcels().countDocuments({ state: 'Deleted' })).toBe(2)
    expect(await labels().countDocuments()).toBe(1)
    await labels().updateOne({}, { $unset: { lockedBy: 1 } as never })
    await pass(120_000)
    await replica.runOnce()
    expect(await labels().countDocuments()).toBe(0)
    expect((await stored())['progress'].waitingFor).toBe('2 children are left')
  })
})

describe('children of a lifecycle with onRemoved are removed before their parent', () => {
  const { database, orders, stored, insert, prepared, pass } = useChildren()
  const labels = () => database.db.collection<{ _id: string; phase: string }>('Label')
  const told = lifecycleOf<Parcel>().define({ ...labelSpec, callbacks: ['onRemoved'] })

  test('each is told; the parent waits for none of these calls', async () => {
    let isAway = true
    const heard: string[] = []
    const replica = await prepared([
      order.handle({
        async Shipping(_doc, step) {
          await step.children([told.child('left', { weight: 1 }), told.child('right', { weight: 1 })])
          const ended = await step.childrenDone({ rule: 'allDone' })
          return ended.done ? step.moveTo('Shipped') : step.wait(ended.text)
        },
        async Deleting(_doc, step) {
          const gone = await step.removeChildren()
          expect(await step.childrenOf(told)).toEqual([])
          return gone.done ? step.moveTo('Deleted') : step.wait(gone.text)
        },
      }),
      told.handle(
        { Printing: async (_doc, step) => step.moveTo('Printed') },
        {
          onRemoved({ id, reason }) {
            if (isAway) throw new Error('away')
            heard.push(`${id}: ${reason}`)
          },
        },
      ),
    ])
    await insert([])
    await replica.runOnce()
    await orders().updateOne({ _id: 'o' }, { $set: { state: 'Deleted' } })
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Deleted' })
    expect(await labels().distinct('phase')).toEqual(['$removed:label'])
    isAway = false
    await pass(60_000)
    await labels().updateMany({}, { $set: { 'progress.outbox.dueAt': new Date(0) } as never })
    await replica.runOnce()
    expect(heard.sort()).toEqual([
      'order/o/left: its parent removes its children: order o',
      'order/o/right: its parent removes its children: order o',
    ])
    expect(await labels().countDocuments()).toBe(0)
  })
})

describe('children of some lists are removed, and may be inserted again', () => {
  const { database, orders, parcels, stored, insert, prepared, pass } = useChildren()
  const labels = () => database.db.collection<{ _id: string; phase: string; weight: number }>('Label')
  const kept = lifecycleOf<Parcel>().define({
    ...parcelSpec,
    phases: { ...parcelSpec.phases, Deleted: { final: true, keepFor: '1h' } },
  })
  const told = lifecycleOf<Parcel>().define({ ...labelSpec, callbacks: ['onRemoved'] })
  let isAway = false

  /** Ships in two lists; a second run takes the first list down before it ships again. */
  const twice = (lists: unknown = ['goods', 'nothing of the kind']) => [
    order.handle({
      async Shipping({ run = 1 }: { run?: number }, step: Step<'Shipped', Order>) {
        if (step.name === undefined && run > 1) {
          const gone = await step.removeChildren({ lists } as never)
          return gone.done ? step.again({ step: 'pack' } as never) : step.wait(gone.text)
        }
        await step.children([kept.child('box', { weight: run }), told.child('label', { weight: run })], {
          list: 'goods',
        })
        await step.children([kept.child('bill', { weight: run })], { list: 'papers' })
        const ended = await step.childrenDone({ rule: 'allDone' })
        return ended.done ? step.moveTo('Shipped') : step.wait(ended.text)
      },
      Deleting: async (_doc: Order, step: Step<'Deleted', Order>) => step.moveTo('Deleted'),
    } as never),
    kept.handle({ Packing: packed, Deleting: async (_doc, step) => step.moveTo('Deleted') }),
    told.handle(
      { Printing: async (_doc, step) => step.moveTo('Printed') },
      {
        onRemoved() {
          if (isAway) throw new Error('away')
        },
      },
    ),
  ]
  const runAgain = () =>
    orders().updateOne({ _id: 'o' }, { $set: { phase: 'Shipping', run: 2, lockedAt: new Date(0) } })

  test('of those lists only, final ones and those to be told too; the rest stays', async () => {
    isAway = true
    const replica = await prepared(twice())
    await insert([])
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipped' })
    await runAgain()
    await replica.runOnce()
    await pass(5_000)
    await replica.runOnce()
    // The removed label isn't told yet.
    expect(await stored()).toMatchObject({ phase: 'Shipping', progress: { waitingFor: '1 child is left' } })
    expect(await labels().distinct('phase')).toEqual(['$removed:label'])
    isAway = false
    await labels().updateMany({}, { $set: { 'progress.outbox.dueAt': new Date(0) } as never })
    await replica.runOnce()
    await pass(60_000)
    await replica.runOnce()
    const order = await stored()
    expect(order).toMatchObject({ phase: 'Shipped' })
    expect(order['progress'].children).toHaveLength(3)
    expect(await parcels().find().sort({ _id: 1 }).toArray()).toMatchObject([
      { _id: 'order/o/bill', phase: 'Packed', weight: 1 },
      { _id: 'order/o/box', phase: 'Packed', weight: 2 },
    ])
    expect(await labels().findOne({})).toMatchObject({ _id: 'order/o/label', phase: 'Printed', weight: 2 })
  })

  test.each([
    ['a name', 'goods'],
    ['a number', [1]],
    ['an empty name', ['']],
  ])('%s is refused', async (_what, lists) => {
    const replica = await prepared(twice(lists))
    await insert([])
    await replica.runOnce()
    await runAgain()
    await replica.runOnce()
    expect((await stored())['progress'].error.message).toMatch(/^removeChildren: expected the names of lists, such as/)
    expect(await parcels().countDocuments()).toBe(2)
  })
})
