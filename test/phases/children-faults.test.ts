import { describe, expect, jest, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { lifecycleOf } from '../../src/index.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { gate } from '../support/thing.js'
import { idOf, label, type Order, ordersWith, parcel, parcelsWith, useChildren } from './children-fixture.js'

jest.setTimeout(60_000)

type Body = Record<string, any>
const isInsertion = ({ name, body }: { name: string; body: Body }) =>
  name === 'aggregate' && (body['pipeline'] ?? []).some((stage: Body) => '$merge' in stage)
const storesNumber = ({ name, body }: { name: string; body: Body }) =>
  name === 'update' && JSON.stringify(body).includes('"children"')

describe('children, where a connection breaks', () => {
  const { database, parcels, stored, insert, prepared, pass } = useChildren()

  test.each([
    ['before they are inserted', 'cutBefore', isInsertion],
    ['after they were inserted', 'cutAfter', isInsertion],
    ['before their number is stored', 'cutBefore', storesNumber],
    ['after their number was stored', 'cutAfter', storesNumber],
  ] as const)('%s: each is inserted once, and counted once', async (_when, how, matching) => {
    const proxy = await TcpProxy.start(database.uri)
    const client = await new MongoClient(proxy.uri, { retryWrites: false, retryReads: false }).connect()
    try {
      const { lifecycle } = ordersWith()
      await prepared([parcelsWith()])
      const replica = await prepared([lifecycle, parcelsWith()], { db: client.db(database.db.databaseName) })
      await insert(['left', 'right'])
      const cut = proxy[how](matching)
      await replica.runOnce()
      await cut
      for (let i = 0; i < 4; i += 1) {
        await pass(61_000)
        await replica.runOnce()
      }
      expect(await stored()).toMatchObject({ phase: 'Shipped', ended: '2 of 2 children have ended' })
      expect((await stored())['progress'].children).toEqual([{ list: 'Shipping', lifecycle: 'parcel', total: 2 }])
      expect((await parcels().distinct('_id')).sort()).toEqual([idOf('left'), idOf('right')])
      for (const { progress } of await parcels().find().toArray())
        expect(progress.history.filter(({ outcome }: Body) => outcome === 'moveTo')).toHaveLength(1)
      await replica.stop()
    } finally {
      await client.close()
      await proxy.stop()
    }
  })

  const clearing = lifecycleOf<Order>().define({
    name: 'order',
    collection: 'Order',
    phases: { Clearing: { next: ['Shipping'], entry: true }, Shipping: { next: ['Shipped'] }, Shipped: { rest: true } },
  })

  test('a step that has lost its document leaves what a later holder has inserted, even with a command that comes late', async () => {
    const labels = () => database.db.collection<{ _id: string }>('Label')
    const proxy = await TcpProxy.start(database.uri)
    const client = await new MongoClient(proxy.uri, { retryWrites: false, retryReads: false }).connect()
    const lifecycles = (before: () => Promise<unknown>) => [
      clearing.handle({
        async Clearing(_doc, step) {
          await before()
          const gone = await step.removeChildren({ lists: ['Shipping'] })
          return gone.done ? step.moveTo('Shipping') : step.wait(gone.text)
        },
        async Shipping(_doc, step) {
          await step.children([parcel.child('a', { weight: 1 }), label.child('a', { weight: 1 })])
          const ended = await step.childrenDone({ rule: 'allDone' })
          return ended.done ? step.moveTo('Shipped', { set: { ended: ended.text } }) : step.wait(ended.text)
        },
      }),
      parcelsWith(),
      label.handle({ Printing: async (_doc, step) => step.moveTo('Printed') }),
    ]
    const clear = () =>
      database.db
        .collection<{ _id: string }>('Order')
        .updateOne({ _id: 'o' }, { $set: { phase: 'Clearing', lockedAt: new Date(0) } })
    const next = await prepared(lifecycles(async () => undefined))
    await insert([])
    await next.runOnce()
    const ended = { phase: 'Shipped', ended: '2 of 2 children have ended' }
    expect(await stored()).toMatchObject(ended)
    try {
      // Its removal is on its way when its lease ends.
      const late = await prepared(
        lifecycles(async () => undefined),
        { db: client.db(database.db.databaseName) },
      )
      await clear()
      const removal = proxy.hold(({ name, body }) => name === 'delete' && (body as Body)['delete'] === 'Label')
      const first = late.runOnce()
      const held = await removal
      await pass(61_000)
      await next.runOnce()
      expect(await stored()).toMatchObject(ended)
      held.release()
      await first
      expect([await labels().countDocuments(), await parcels().countDocuments()]).toEqual([1, 1])
      // Its handler stood still before it removes them.
      const still = gate()
      const begun = gate()
      const slow = await prepared(
        lifecycles(async () => {
          begun.open()
          await still.wait
        }),
      )
      await clear()
      const second = slow.runOnce()
      await begun.wait
      await pass(61_000)
      await next.runOnce()
      expect(await stored()).toMatchObject(ended)
      still.open()
      await second
      await next.runOnce()
      expect([await labels().countDocuments(), await parcels().countDocuments({ phase: 'Packed' })]).toEqual([1, 1])
    } finally {
      await client.close()
      await proxy.stop()
    }
  })
})
