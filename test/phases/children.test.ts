import { describe, expect, jest, test } from '@jest/globals'
import { LeaseLost } from '../../src/index.js'
import { childIndex, countChildrenIn, hasOpenChild } from '../../src/lock/index.js'
import { showDocument } from '../../src/operations/index.js'
import { LifecycleKit } from '../../src/testing/index.js'
import { eventually } from '../support/database.js'
import { gate } from '../support/thing.js'
import { idOf, order, ordersWith, packed, parcel, parcelsWith, useChildren } from './children-fixture.js'

jest.setTimeout(60_000)

describe('children', () => {
  const { database, orders, parcels, stored, insert, prepared, pass } = useChildren()

  test('are inserted, run, and the last of them wakes their parent', async () => {
    const { seen, lifecycle } = ordersWith()
    const replica = await prepared([lifecycle, parcelsWith()])
    await insert(['left', 'right'])
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipped', ended: '2 of 2 children have ended' })
    // Once before they had ended, and once when all had: no run in between, and no back-off.
    expect(seen.map(({ counts }) => counts.succeeded)).toEqual([0, 2])
    expect(seen[0]).toEqual({
      done: false,
      met: false,
      counts: { total: 2, succeeded: 0, failed: 0, parked: 0, open: 2, removed: 0 },
      worst: 'open',
      text: '0 of 2 children have ended',
    })
    const { progress } = (await parcels().findOne({ _id: idOf('left') }))!
    const { fence, ...parent } = progress.parent
    expect(parent).toEqual({ lifecycle: 'order', id: 'o', key: 'left', list: 'Shipping' })
    expect(fence).toBeLessThanOrEqual((await stored())['fence'])
    const after = (await stored())['progress']
    expect(after.children).toEqual([{ list: 'Shipping', lifecycle: 'parcel', total: 2 }])
    expect(after).not.toHaveProperty('awaits')
    expect(after.history.map(({ outcome, reason }: { outcome: string; reason: string }) => [outcome, reason])).toEqual([
      ['checkpoint', 'its first children'],
      ['checkpoint', 'children: 2 of parcel'],
      ['wait', '0 of 2 children have ended'],
      ['moveTo', null],
    ])
  })

  test('wait for nobody: their parent sleeps without a holder until a minute is over', async () => {
    const { lifecycle } = ordersWith()
    const replica = await prepared([lifecycle])
    await prepared([parcelsWith()]) // registers it, and never ticks
    await insert(['left'])
    await replica.runOnce()
    const found = await stored()
    expect(found).not.toHaveProperty('lockedBy')
    expect(found['progress']).toMatchObject({
      waitingFor: '0 of 1 child has ended',
      awaits: { kind: 'children', rule: 'allSucceeded', parked: 'waits' },
      waitingOn: 'children',
    })
    expect(found['progress'].resumeAt.getTime() - found['progress'].waitingSince.getTime()).toBe(60_000)
  })

  test.each([
    ['allSucceeded', ['a', 'b'], 'Shipped'],
    ['allSucceeded', ['a', 'b!'], 'Stuck'],
    ['allDone', ['a', 'b!'], 'Shipped'],
    ['anyFailed', ['a', 'b!'], 'Shipped'],
    ['anyFailed', ['a', 'b'], 'Stuck'],
    ['2 of 3', ['a', 'b', 'c!'], 'Shipped'],
    ['2 of 3', ['a', 'b!', 'c!'], 'Stuck'],
    ['allDone', [], 'Shipped'],
    ['anyFailed', [], 'Stuck'],
  ] as const)('are done by the rule %s with %j: %s', async (rule, names, phase) => {
    const { lifecycle } = ordersWith({ rule })
    const replica = await prepared([lifecycle, parcelsWith()])
    await insert([...names])
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase })
    expect(await parcels().countDocuments()).toBe(names.length)
  })

  test('decide as soon as the rest can change nothing: the first failure wakes the parent, the first of many successes does not', async () => {
    const held = gate()
    const { seen, lifecycle } = ordersWith({ rule: 'allSucceeded' })
    const replica = await prepared([
      lifecycle,
      parcelsWith(async (doc, step) => {
        if (doc._id === idOf('slow')) await held.wait
        return packed(doc, step)
      }),
    ])
    await insert(['a', 'b', 'slow', 'c!'])
    const running = replica.runOnce()
    await eventually(async () => expect(await stored()).toMatchObject({ progress: { awaits: expect.anything() } }))
    await eventually(() => expect(seen.length).toBeGreaterThan(0))
    held.open()
    await running
    expect(await stored()).toMatchObject({ phase: 'Stuck' })
    expect(seen.length).toBeLessThanOrEqual(3)
  })

  test('in two lists that are inserted at once are both listed', async () => {
    const inserting = order.handle({
      async Shipping(_doc, step) {
        const insertAs = (list: string) => step.children([parcel.child(list, { weight: 1 })], { list })
        await Promise.all([insertAs('left'), insertAs('right')])
        return step.moveTo('Shipped')
      },
    })
    const replica = await prepared([inserting, parcelsWith()])
    await insert([])
    await replica.runOnce()
    expect((await stored())['progress'].children).toMatchObject([{ list: 'left' }, { list: 'right' }])
  })

  test('that were removed by hand count as failed, and are not inserted again', async () => {
    const { lifecycle } = ordersWith({ rule: 'allDone' })
    const replica = await prepared([lifecycle])
    await prepared([parcelsWith()])
    await insert(['left', 'right'])
    await replica.runOnce()
    await parcels().deleteMany({})
    await pass(61_000)
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipped', ended: '2 of 2 children have ended (2 removed)' })
    expect(await parcels().countDocuments()).toBe(0)
  })

  test('whose end nobody told are counted at the end of the sleep', async () => {
    const { lifecycle } = ordersWith()
    const replica = await prepared([lifecycle])
    await prepared([parcelsWith()])
    await insert(['left'])
    await replica.runOnce()
    await parcels().updateOne({ _id: idOf('left') }, { $set: { phase: 'Packed' } }) // as by a replica that died just then
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipping' })
    await pass(61_000)
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipped' })
  })

  test.each([
    ['waits', 'Shipping', 1],
    ['fails', 'Stuck', 2],
  ] as const)('that are parked: the parent %s', async (parked, phase, runs) => {
    const { seen, lifecycle } = ordersWith({ rule: 'allSucceeded', parked })
    const children = parcelsWith(async (_doc, step) => step.park('no tape'))
    const replica = await prepared([lifecycle, children])
    await insert(['left'])
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase })
    expect(seen).toHaveLength(runs)
    await pass(61_000)
    await replica.runOnce()
    expect(seen.at(-1)).toMatchObject({ worst: 'parked', text: '0 of 1 child has ended (1 parked)' })
    if (parked === 'waits') expect((await stored())['progress'].waitingOn).toBe('parked-child')
  })

  test.each([
    ['that fail: it is counted by the worst', undefined, 'failed-child'],
    ['its own word comes first', 'parcels', 'parcels'],
  ])('%s', async (_name, on, waitingOn) => {
    const lifecycle = order.handle({
      async Shipping(doc, step) {
        await step.children(doc.parcels.map((key) => parcel.child(key, { weight: 1, fails: key.endsWith('!') })))
        const ended = await step.childrenDone({ rule: 'allDone', wake: 'each' })
        return ended.done ? step.moveTo('Shipped') : step.wait(ended.text, { ...(on && { on }) })
      },
    })
    const children = parcelsWith(async (doc, step) =>
      doc._id === idOf('right') ? step.wait('no van', { for: '1h' }) : packed(doc, step),
    )
    const replica = await prepared([lifecycle, children])
    await insert(['left!', 'right'])
    await replica.runOnce()
    expect((await stored())['progress']).toMatchObject({
      waitingFor: '1 of 2 children have ended (1 failed)',
      waitingOn,
    })
  })

  test('of two replicas, one for parents and one for children: the end wakes the parent of the other', async () => {
    const { seen, lifecycle } = ordersWith()
    const [ofOrders, ofParcels] = [await prepared([lifecycle]), await prepared([parcelsWith()])]
    await insert(['left', 'right'])
    await ofOrders.runOnce()
    await ofParcels.runOnce()
    expect(await stored()).toMatchObject({ lockedAt: new Date(0), phase: 'Shipping' })
    await ofOrders.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipped' })
    expect(seen).toHaveLength(2)
  })

  test('that end while their parent is held wake it when it has been let go', async () => {
    const [counted, go] = [gate(), gate()]
    let runs = 0
    const lifecycle = order.handle({
      async Shipping(doc, step) {
        runs += 1
        await step.children(doc.parcels.map((key) => parcel.child(key, { weight: 1 })))
        const ended = await step.childrenDone({ rule: 'allDone' })
        if (runs === 1) {
          counted.open()
          await go.wait
        }
        return ended.done ? step.moveTo('Shipped') : step.wait(ended.text)
      },
    })
    const [ofOrders, ofParcels] = [await prepared([lifecycle]), await prepared([parcelsWith()])]
    await insert(['left'])
    const running = ofOrders.runOnce()
    await counted.wait
    await ofParcels.runOnce()
    go.open()
    await running
    await eventually(async () => {
      await ofOrders.runOnce()
      expect(await stored()).toMatchObject({ phase: 'Shipped' })
    })
    expect(runs).toBe(2)
  })

  test('are inserted once by a step that failed after it, in whatever step', async () => {
    let runs = 0
    const lifecycle = order.handle({
      async Shipping(_doc, step) {
        runs += 1
        await step.children([parcel.child('left', { weight: 1 })])
        if (runs === 1) {
          await parcels().deleteMany({})
          throw new Error('after the insert')
        }
        return step.wait('enough')
      },
    })
    const replica = await prepared([lifecycle])
    await prepared([parcelsWith()])
    await insert([])
    await replica.runOnce()
    await pass(5_000)
    await replica.runOnce()
    expect(runs).toBe(2)
    expect(await parcels().countDocuments()).toBe(0)
  })

  test('are inserted once where the step before had inserted them, and crashed before it stored their number', async () => {
    const { lifecycle } = ordersWith({ rule: 'allDone' })
    const replica = await prepared([lifecycle])
    await prepared([parcelsWith()])
    await insert(['left', 'right'])
    await replica.runOnce()
    await parcels().updateOne({ _id: idOf('left') }, { $set: { phase: 'Packed', effects: 1 } })
    await orders().updateOne({ _id: 'o' }, { $set: { lockedAt: new Date(0) }, $unset: { 'progress.children': 1 } })
    await replica.runOnce()
    expect(await parcels().countDocuments()).toBe(2)
    expect(await parcels().findOne({ _id: idOf('left') })).toMatchObject({ phase: 'Packed', effects: 1 })
    expect((await stored())['progress'].children).toEqual([{ list: 'Shipping', lifecycle: 'parcel', total: 2 }])
  })

  test('are not inserted by a step that has lost its document', async () => {
    let error: unknown
    const lifecycle = order.handle({
      async Shipping(doc, step) {
        await orders().updateOne({ _id: doc._id }, { $set: { lockedBy: 'another~1#1.1' } })
        await step.children([parcel.child('left', { weight: 1 })]).catch((thrown) => {
          error = thrown
        })
        return step.moveTo('Shipped')
      },
    })
    const replica = await prepared([lifecycle])
    await prepared([parcelsWith()])
    await insert([])
    await replica.runOnce()
    expect(error).toBeInstanceOf(LeaseLost)
    expect(await parcels().countDocuments()).toBe(0)
    expect(await stored()).toMatchObject({ phase: 'Shipping' })
  })

  test('in a kit: a replica that dies after it has inserted them leaves nothing twice', async () => {
    const { seen, lifecycle } = ordersWith()
    const kit = await LifecycleKit.open({ lifecycles: [lifecycle, parcelsWith()], uri: database.uri })
    try {
      await kit.insert('order', { _id: 'o', phase: 'Shipping', parcels: ['left', 'right'] })
      await Promise.all([kit.crash('Shipping'), kit.untilIdle()])
      await kit.untilPhase('order', 'o', 'Shipped')
      expect(seen.at(-1)).toMatchObject({ met: true, counts: { total: 2, succeeded: 2 } })
      expect(await kit.documents('parcel').countDocuments()).toBe(2)
    } finally {
      await kit.close()
    }
  })

  test('show on their parent: how many are in which state, the worst by name; and they show whose they are', async () => {
    const { lifecycle } = ordersWith({ rule: 'allSucceeded' })
    const children = parcelsWith(async (doc, step) =>
      doc._id === idOf('stuck') ? step.park('no tape') : packed(doc, step),
    )
    const replica = await prepared([lifecycle, children])
    await insert(['left', 'stuck', 'lost'])
    await replica.runOnce()
    await parcels().deleteOne({ _id: idOf('lost') })
    const system = { db: database.db, models: [order.model, parcel.model] }
    const { children: shown, parent } = await showDocument(system, { id: 'o' })
    expect(parent).toBeUndefined()
    expect(shown).toEqual({
      byLifecycle: [
        {
          ...{ lifecycle: 'parcel', total: 3, succeeded: 1, failed: 0, parked: 1, open: 0, removed: 1 },
          ...{ worst: 'parked', worstIds: [idOf('stuck')] },
        },
      ],
      unknown: [],
      worst: 'parked',
    })
    const child = await showDocument(system, { id: idOf('left') })
    expect(child.children).toBeUndefined()
    expect(child.parent).toEqual({ lifecycle: 'order', id: 'o', key: 'left', list: 'Shipping', phase: 'Shipping' })
    await orders().deleteMany({})
    expect((await showDocument(system, { id: idOf('left') })).parent).toMatchObject({ phase: undefined })
  })

  test('of thousands: each once, and the parent runs a handful of times', async () => {
    const { seen, lifecycle } = ordersWith({ rule: 'allSucceeded' })
    const names = Array.from({ length: 3_000 }, (_, i) => `p${i}`)
    const replica = await prepared([lifecycle, parcelsWith()])
    await insert(names)
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipped', ended: '3000 of 3000 children have ended' })
    expect(await parcels().countDocuments({ phase: 'Packed' })).toBe(3_000)
    expect(seen.length).toBeLessThan(10)
  })

  test('whose parent was removed go on, and wake nobody', async () => {
    const { lifecycle } = ordersWith()
    const [ofOrders, ofParcels] = [await prepared([lifecycle]), await prepared([parcelsWith()])]
    await insert(['left'])
    await ofOrders.runOnce()
    await orders().deleteMany({})
    await ofParcels.runOnce()
    expect(await parcels().findOne({ _id: idOf('left') })).toMatchObject({ phase: 'Packed' })
    expect(await orders().countDocuments()).toBe(0)
  })

  test('end at the cost of a few keys, however many there are; nobody counts them for that', async () => {
    await prepared([parcelsWith()])
    const inserted = Array.from({ length: 2_000 }, (_, i) => ({
      ...{ _id: `c${i}`, phase: i < 1_000 ? 'Packed' : 'Packing' },
      progress: { parent: { lifecycle: 'order', id: 'o', key: `c${i}`, list: 'x' } },
    }))
    await parcels().insertMany(inserted)
    const of = { 'progress.parent.id': { $eq: 'o' }, 'progress.parent.lifecycle': { $eq: 'order' } }
    const open = parcels().find({ ...of, phase: { $nin: ['Packed', 'Broken', 'Deleted'] } })
    const hinted = open.hint(childIndex('progress')).project({ _id: 0, phase: 1 }).limit(1)
    const { totalKeysExamined, totalDocsExamined } = (await hinted.explain('executionStats'))['executionStats']
    expect(totalKeysExamined).toBeLessThanOrEqual(5)
    expect(totalDocsExamined).toBe(0)
    const family = { collection: parcels() as never, progress: 'progress', parent: { lifecycle: 'order', id: 'o' } }
    expect(await hasOpenChild(family, ['Packed', 'Broken', 'Deleted'])).toBe(true)
    expect(await countChildrenIn(family, ['Packed'], 10)).toBe(10)
  })

  test('are found by an index of their own, which only their collection has', async () => {
    const { lifecycle } = ordersWith()
    await prepared([lifecycle, parcelsWith()])
    const keys = async (name: string) =>
      (await database.db.collection(name).indexes()).map(({ key }) => Object.keys(key).join())
    expect(await keys('Parcel')).toContain('progress.parent.id,progress.parent.lifecycle,phase')
    expect(await keys('Order')).toHaveLength(3)
    await database.db.collection('Parcel').dropIndexes()
    await expect(prepared([parcelsWith()], { indexes: 'check' })).rejects.toThrow(/"progress.parent.id":1/)
  })
})
