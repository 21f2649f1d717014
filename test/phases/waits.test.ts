import { describe, expect, jest, test } from '@jest/globals'
import { lifecycleOf } from '../../src/index.js'
import type { DocumentPhases, WaitForOptions } from '../../src/phases/index.js'
import { gate } from '../support/thing.js'
import { idOf, order, ordersWith, parcel, parcelsWith, useChildren } from './children-fixture.js'

jest.setTimeout(60_000)

interface Note {
  _id: string
  lifecycle?: string
  on: string
  phases?: string[]
  seen?: string
}

const note = lifecycleOf<Note>().define({
  name: 'note',
  collection: 'Note',
  phases: { Waiting: { next: ['Sent'] }, Sent: { rest: true } },
})

/** Notes that wait until a parcel, or what they name, is in a phase. */
function notes(options?: WaitForOptions) {
  const said: string[] = []
  const lifecycle = note.handle({
    async Waiting(doc, step) {
      const { lifecycle, phases = [] } = doc
      const target: DocumentPhases = lifecycle ? { lifecycle, id: doc.on, phases } : parcel.at(doc.on, 'Packed')
      const there = await step.waitFor(target, options)
      said.push(there.text)
      return there.done ? step.moveTo('Sent', { set: { seen: String(there.phase) } }) : step.wait(there.text)
    },
  })
  return { said, lifecycle }
}

describe('a document that waits for the phase of another', () => {
  const { database, parcels, prepared, insert, stored: storedOrder } = useChildren()
  const all = () => database.db.collection<Note & { phase: string; progress: any }>('Note')
  const add = (_id: string, on: string, more: Partial<Note> = {}) =>
    all().insertOne({ _id, phase: 'Waiting', on, ...more } as never)
  const noted = async (_id = 'n') => (await all().findOne({ _id })) as Record<string, any>

  test('goes on at once if it is there; else it sleeps until the other one moves', async () => {
    const { said, lifecycle } = notes()
    const replica = await prepared([lifecycle])
    const ofParcels = await prepared([parcelsWith()])
    await parcels().insertOne({ _id: 'p', phase: 'Packing' })
    await add('n', 'p')
    await replica.runOnce()
    expect(await noted()).toMatchObject({
      phase: 'Waiting',
      progress: {
        waitingFor: 'parcel p is in Packing, not in Packed',
        awaits: { kind: 'document', lifecycle: 'parcel', id: 'p', phases: ['Packed'] },
      },
    })
    expect(await noted()).not.toHaveProperty('lockedBy')
    expect(await parcels().findOne({})).toMatchObject({ progress: { waiters: [{ lifecycle: 'note', id: 'n' }] } })
    await ofParcels.runOnce()
    await replica.runOnce()
    expect(await noted()).toMatchObject({ phase: 'Sent', seen: 'Packed' })
    expect(said).toHaveLength(2)
    await add('late', 'p')
    await replica.runOnce()
    expect(await noted('late')).toMatchObject({ phase: 'Sent' })
    expect((await parcels().findOne({}))!['progress'].waiters).toHaveLength(1)
  })

  test('is not woken by another phase, nor for what it no longer waits for', async () => {
    const { said, lifecycle } = notes()
    const replica = await prepared([lifecycle, parcelsWith(async (_doc, step) => step.moveTo('Broken'))])
    await parcels().insertOne({ _id: 'p', phase: 'Packing', lockedAt: new Date(Date.now() + 3_600_000) })
    await add('n', 'p')
    await replica.runOnce()
    await parcels().updateOne({}, { $set: { lockedAt: new Date(0) } })
    await replica.runOnce()
    expect(await parcels().findOne({})).toMatchObject({ phase: 'Broken' })
    expect(said).toHaveLength(1)
  })

  test('looks again by itself where nobody could tell: no such document yet, or one whose step ran already', async () => {
    const { lifecycle } = notes()
    const replica = await prepared([lifecycle])
    const [began, go] = [gate(), gate()]
    const ofParcels = await prepared([
      parcelsWith(async (_doc, step) => {
        began.open()
        await go.wait
        return step.moveTo('Packed')
      }),
    ])
    await add('n', 'p')
    await replica.runOnce()
    expect((await noted())['progress'].waitingFor).toBe('parcel p is not there')
    await parcels().insertOne({ _id: 'p', phase: 'Packing' })
    const running = ofParcels.runOnce()
    await began.wait
    await all().updateOne({ _id: 'n' }, { $set: { lockedAt: new Date(0) } })
    await replica.runOnce()
    const { resumeAt, awaits } = (await noted())['progress']
    expect(awaits.phases).toEqual(['Packed'])
    expect(resumeAt.getTime() - Date.now()).toBeLessThan(3_000)
    go.open()
    await running
    await all().updateOne({ _id: 'n' }, { $set: { lockedAt: new Date(0) } })
    await replica.runOnce()
    expect(await noted()).toMatchObject({ phase: 'Sent' })
  })

  test('in a circle is an error that names it: through others, and of a child that waits for its parent', async () => {
    const { lifecycle } = notes()
    const replica = await prepared([lifecycle])
    const to = (on: string): [string, Partial<Note>] => [on, { lifecycle: 'note', phases: ['Sent'] }]
    await add('a', ...to('b'))
    await replica.runOnce()
    await add('b', ...to('c'))
    await replica.runOnce()
    await add('c', ...to('a'))
    await replica.runOnce()
    const { error } = (await noted('c'))['progress']
    expect(error.message).toMatch(/in a circle: note c -> note a -> note b -> note c/)
    await add('self', ...to('self'))
    await replica.runOnce()
    expect((await noted('self'))['progress'].error.message).toMatch(/waits for itself/)

    const parents = ordersWith({ rule: 'allDone' })
    const family = await prepared([
      parents.lifecycle,
      parcelsWith(async (_doc, step) => {
        const there = await step.waitFor(order.at('o', 'Shipped'))
        return there.done ? step.moveTo('Packed') : step.wait(there.text)
      }),
    ])
    await insert(['left'])
    await family.runOnce()
    expect(await storedOrder()).toMatchObject({ phase: 'Shipping' })
    await parcels().updateMany({}, { $set: { lockedAt: new Date(0) } })
    await family.runOnce()
    expect((await parcels().findOne({ _id: idOf('left') }))!['progress'].error.message).toMatch(
      /circle: parcel order\/o\/left -> order o -> parcel order\/o\/left/,
    )
  })

  test.each([
    ['an unknown lifecycle', { lifecycle: 'gift', phases: ['Sent'] }, /expected a lifecycle that .* got 'gift'/],
    [
      'an unknown phase',
      { lifecycle: 'note', phases: ['Gone'] },
      /expected phases of note \(Waiting, Sent\), got "Gone"/,
    ],
    ['no phases', { lifecycle: 'note', phases: [] }, /expected 1 to 100 phases/],
  ])('is refused %s', async (_what, more, message) => {
    const replica = await prepared([notes().lifecycle])
    await add('n', 'x', more)
    await replica.runOnce()
    expect((await noted())['progress'].error.message).toMatch(message)
  })

  test('leaves a progress of its owner alone, and keeps the newest hundred of those that wait', async () => {
    const replica = await prepared([notes().lifecycle])
    await prepared([parcelsWith()])
    await parcels().insertMany([
      { _id: 'p', phase: 'Broken' },
      { _id: 'own', phase: 'Broken', progress: 5 },
    ])
    await add('n', 'own')
    for (let i = 0; i < 103; i += 1) await add(`n${i}`, 'p')
    await replica.runOnce()
    expect(await parcels().findOne({ _id: 'own' })).toMatchObject({ progress: 5 })
    expect((await parcels().findOne({ _id: 'p' }))!['progress'].waiters).toHaveLength(100)
  })
})
