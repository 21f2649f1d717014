import { describe, expect, jest, test } from '@jest/globals'
import { flowOf, lifecycleOf, type Replica } from '../../src/index.js'
import { showDocument } from '../../src/operations/index.js'
import { LifecycleKit } from '../../src/testing/index.js'
import { eventually } from '../support/database.js'
import { gate } from '../support/thing.js'
import { idOf, order, ordersWith, packed, parcel, parcelsWith, useChildren } from './children-fixture.js'

jest.setTimeout(60_000)

describe('children of a former document, after another was inserted with its _id', () => {
  const { database, orders, parcels, stored, insert, prepared } = useChildren()

  const system = () => ({ db: database.db, models: [order.model, parcel.model] })

  /** As `keepFor` or a person removes it; its children stay. */
  async function insertedAgain(names: string[]) {
    await orders().deleteOne({ _id: 'o' })
    await insert(names)
  }
  async function shippedBefore(replica: Replica, names: string[]) {
    await insert(names)
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipped' })
  }

  test('are not taken for its own: their _ids are refused, with what to do', async () => {
    const replica = await prepared([ordersWith().lifecycle, parcelsWith()])
    await shippedBefore(replica, ['left'])
    await insertedAgain(['left'])
    await replica.runOnce()
    const { phase, progress } = await stored()
    expect(phase).toBe('Shipping')
    expect(progress.error).toMatchObject({
      name: 'ChildExists',
      message: `children: parcel ${idOf('left')} is the child 'left' of a former order o (a string), which is gone (its list 'Shipping'): remove it first (step.removeChildren({ lists: ['Shipping'] })), or give the child another _id`,
    })
    const shown = await showDocument(system(), { lifecycle: 'parcel', id: idOf('left') })
    expect(shown.parent).toMatchObject({ lifecycle: 'order', id: 'o', phase: undefined })
  })

  test('make room for its own where it removes them first', async () => {
    const weights: number[] = []
    const clearing = lifecycleOf<{ _id: string; parcels: string[] }>().define({
      name: 'order',
      collection: 'Order',
      phases: { Clearing: { next: ['Shipping'] }, Shipping: { next: ['Shipped'] }, Shipped: { rest: true } },
    })
    const lifecycle = clearing.handle({
      async Clearing(_doc, step) {
        const gone = await step.removeChildren({ lists: ['Shipping'] })
        return gone.done ? step.moveTo('Shipping') : step.wait(gone.text, { for: '100ms' })
      },
      async Shipping(doc, step) {
        await step.children(doc.parcels.map((key) => parcel.child(key, { weight: weights.length + 1 })))
        const ended = await step.childrenDone({ rule: 'allSucceeded' })
        if (!ended.done) return step.wait(ended.text)
        weights.push(...(await step.childrenOf(parcel)).map(({ weight }) => weight as number))
        return step.moveTo('Shipped')
      },
    })
    const kit = await LifecycleKit.open({ lifecycles: [lifecycle, parcelsWith()], uri: database.uri })
    try {
      for (const _ of [1, 2]) {
        await kit.documents('order').deleteOne({ _id: 'o' as never })
        await kit.insert('order', { _id: 'o', phase: 'Clearing', parcels: ['left'] })
        await kit.untilPhase('order', 'o', 'Shipped')
      }
      expect(weights).toEqual([1, 2])
    } finally {
      await kit.close()
    }
  })

  test('do not count, are not read, and are not shown as its own', async () => {
    const { seen, lifecycle } = ordersWith({ rule: 'allDone' })
    const replica = await prepared([lifecycle, parcelsWith()])
    await shippedBefore(replica, ['old', 'older!'])
    seen.length = 0
    await insertedAgain(['new'])
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipped', ended: '1 of 1 child has ended' })
    expect(seen.map(({ counts }) => counts.total)).toEqual([1, 1])
    const shown = await showDocument(system(), { lifecycle: 'order', id: 'o' })
    expect(shown.children?.byLifecycle).toMatchObject([{ lifecycle: 'parcel', total: 1, succeeded: 1, failed: 0 }])
    expect(await parcels().countDocuments()).toBe(3)
  })

  test('that still run keep it from nothing, and their ends do not wake it', async () => {
    const gates = { old: gate(), new: gate() }
    const { seen, lifecycle } = ordersWith({ rule: 'allDone', wake: 'each' })
    const ofOrders = await prepared([lifecycle])
    const ofParcels = await prepared([
      parcelsWith(async (doc, step) => {
        await gates[doc._id.endsWith('old') ? 'old' : 'new'].wait
        return packed(doc, step)
      }),
    ])
    await insert(['old'])
    await ofOrders.runOnce()
    await insertedAgain(['new'])
    await ofOrders.runOnce()
    expect(await stored()).toMatchObject({ progress: { waitingFor: '0 of 1 child has ended' } })
    seen.length = 0
    const running = ofParcels.runOnce()
    gates.old.open()
    await eventually(async () => expect(await parcels().countDocuments({ phase: 'Packed' })).toBe(1))
    await ofOrders.runOnce()
    expect(seen).toEqual([])
    gates.new.open()
    await running
    await ofOrders.runOnce()
    expect(seen).toMatchObject([{ text: '1 of 1 child has ended' }])
    expect(await stored()).toMatchObject({ phase: 'Shipped' })
  })

  test('that are open when its own last one ends do not keep it asleep', async () => {
    const old = gate()
    const { lifecycle } = ordersWith({ rule: 'allDone' })
    const ofOrders = await prepared([lifecycle])
    const ofParcels = await prepared([
      parcelsWith(async (doc, step) => {
        if (doc._id === idOf('old')) await old.wait
        return packed(doc, step)
      }),
    ])
    await insert(['old'])
    await ofOrders.runOnce()
    await insertedAgain(['new'])
    await ofOrders.runOnce()
    const running = ofParcels.runOnce()
    await eventually(async () => {
      await ofOrders.runOnce()
      expect(await stored()).toMatchObject({ phase: 'Shipped', ended: '1 of 1 child has ended' })
    })
    old.open()
    await running
  })

  test('may wait for it, while it waits for its own: that is no circle', async () => {
    const { lifecycle } = ordersWith({ rule: 'allDone' })
    const ofOrders = await prepared([lifecycle])
    const ofParcels = await prepared([
      parcelsWith(async (doc, step) => {
        if (doc._id !== idOf('old')) return packed(doc, step)
        const there = await step.waitFor(order.at('o', 'Shipped'))
        return there.done ? step.moveTo('Packed') : step.wait(there.text)
      }),
    ])
    await parcels().insertOne({
      _id: idOf('old'),
      phase: 'Packing',
      progress: { parent: { lifecycle: 'order', id: 'o', key: 'old', list: 'Shipping', fence: 1 } },
    })
    await insert(['new'])
    await ofOrders.runOnce()
    await ofParcels.runOnce()
    await ofOrders.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipped', ended: '1 of 1 child has ended' })
    await ofParcels.runOnce()
    const old = await parcels().findOne({ _id: idOf('old') })
    expect(old).toMatchObject({ phase: 'Packed' })
    expect(old).not.toHaveProperty('progress.error')
  })

  test("of a flow's run are removed before its tasks begin again", async () => {
    const ran: string[] = []
    const nightly = flowOf<{ _id: string; day: string }>().define({
      name: 'nightly',
      collection: 'Nightly',
      tasks: { extract: {}, clean: { after: ['extract'] } },
    })
    const task: Parameters<typeof nightly.handle>[0]['clean'] = async (doc, step) => {
      ran.push(`${step.progress.parent!.key} of ${doc.run.day}`)
      return step.moveTo('Succeeded')
    }
    const kit = await LifecycleKit.open({
      lifecycles: nightly.handle({ extract: task, clean: task }),
      uri: database.uri,
    })
    try {
      for (const day of ['monday', 'tuesday']) {
        await kit.documents('nightly').deleteOne({ _id: 'n' as never })
        await kit.insert('nightly', { _id: 'n', phase: 'Running', day })
        await kit.untilPhase('nightly', 'n', 'Succeeded')
      }
      expect(ran).toEqual(['extract of monday', 'clean of monday', 'extract of tuesday', 'clean of tuesday'])
    } finally {
      await kit.close()
    }
  })
})
