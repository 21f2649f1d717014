import { describe, expect, jest, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { InvalidLifecycle, lifecycleOf, Replica, type RunnableLifecycle } from '../../src/index.js'
import { PARKED_AT } from '../../src/lock/index.js'
import { explain } from '../../src/operations/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { recordingLogger, recordingObserver } from '../support/thing.js'

jest.setTimeout(240_000)

interface Parcel {
  _id: string
  state?: 'Deleted'
  seen?: string[]
}

const settings = { name: 'parcel', collection: 'Parcel' } as const

/** Packing -> Shipping -> Delivered, Deleted from anywhere. */
const v1 = lifecycleOf<Parcel>().define({
  ...settings,
  phases: {
    Packing: { next: ['Shipping'] },
    Shipping: { next: ['Checking', 'Delivered'] },
    Checking: { next: ['Shipping'] },
    Delivered: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
})

/** Shipping is called Sending; Checking is gone: what is in it goes on in Sending. */
const v2 = lifecycleOf<Parcel>().define({
  ...settings,
  phases: {
    Packing: { next: ['Sending'] },
    Sending: { next: ['Delivered'] },
    Delivered: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
  renamed: { Shipping: 'Sending', Checking: 'Sending' },
})

describe('two versions of a lifecycle side by side', () => {
  const database = useDatabase()
  const parcels = () => database.db.collection<Document & { _id: string }>('Parcel')

  test('a phase renamed and one removed: every document ends well, none bounces, under load', async () => {
    const { db } = database
    const seen = (doc: Parcel, phase: string) => ({ set: { seen: [...(doc.seen ?? []), phase] } })
    const old: RunnableLifecycle = v1.handle({
      Packing: async (doc, step) => step.moveTo('Shipping', seen(doc, 'Packing 1')),
      Shipping: async (doc, step) =>
        doc.seen?.includes('Checking 1')
          ? step.moveTo('Delivered', seen(doc, 'Shipping 1'))
          : step.moveTo('Checking', seen(doc, 'Shipping 1')),
      Checking: async (doc, step) =>
        doc.seen?.includes('waited')
          ? step.moveTo('Shipping', seen(doc, 'Checking 1'))
          : step.wait('a scanner', { for: '300ms', ...seen(doc, 'waited') }),
      Deleting: async (doc, step) => step.moveTo('Deleted', seen(doc, 'Deleting 1')),
    })
    const latest: RunnableLifecycle = v2.handle({
      Packing: async (doc, step) => step.moveTo('Sending', seen(doc, 'Packing 2')),
      Sending: async (doc, step) => step.moveTo('Delivered', seen(doc, 'Sending 2')),
      Deleting: async (doc, step) => step.moveTo('Deleted', seen(doc, 'Deleting 2')),
    })
    const observer = recordingObserver()
    const replica = (lifecycle: RunnableLifecycle, name: string) =>
      new Replica({ db, lifecycles: [lifecycle], name, observer })
    const phases = ['Packing', 'Shipping', 'Checking']
    await parcels().insertMany(
      Array.from({ length: 300 }, (_, i) => ({ _id: `a${i}`, phase: phases[i % phases.length]! })),
    )
    // Only a replica of the latest version can handle this one, so that both versions take part whoever is quicker.
    await parcels().insertOne({ _id: 'newest', phase: 'Sending' })
    const oldest = [replica(old, 'old-1'), replica(old, 'old-2')]
    const replicas = [...oldest, replica(latest, 'new-1'), replica(latest, 'new-2')]
    try {
      await Promise.all(oldest.map((one) => one.start()))
      await eventually(async () => (await parcels().countDocuments({ seen: 'Shipping 1' })) > 0)
      await Promise.all(replicas.slice(2).map((one) => one.start()))
      for (let n = 0; n < 300; n += 30) {
        await parcels().insertMany(Array.from({ length: 30 }, (_, i) => ({ _id: `b${n + i}`, phase: phases[i % 3]! })))
        const some = Array.from({ length: 5 }, (_, i) => `b${n + i}`)
        await parcels().updateMany({ _id: { $in: some } }, { $set: { state: 'Deleted' } })
      }
      await eventually(async () => (await parcels().countDocuments({ phase: 'Delivered' })) === 551, {
        timeoutMs: 120_000,
      })
      await eventually(async () => (await parcels().countDocuments()) === 551)
    } finally {
      await Promise.all(replicas.map((one) => one.stop()))
    }
    const all = await parcels().find().toArray()
    const handled = new Set(all.flatMap((doc) => doc['seen'] as string[]))
    // Both took part.
    for (const step of ['Shipping 1', 'Sending 2']) expect(handled).toContain(step)
    // Through its own graph at most: each version's steps once, and no way back from Sending.
    for (const doc of all) {
      const steps = doc['seen'] as string[]
      expect(steps.length).toBeLessThanOrEqual(6)
      expect(steps.filter((step) => step === 'Sending 2').length).toBeLessThanOrEqual(1)
      const sending = steps.indexOf('Sending 2')
      expect(sending === -1 || sending === steps.length - 1).toBe(true)
    }
    expect(observer.losses).toEqual([])
    expect(observer.steps.filter(({ outcome }) => outcome === 'error')).toEqual([])
  })

  test('a rename never touches a held document, ends no sleep and no park, keeps progress and all else', async () => {
    const now = Date.now()
    const progress = { since: new Date(now - 60_000), step: 'weigh', attempts: 3, endedBy: 'r~1#1.1' }
    const held = { lockedAt: new Date(now), lockedBy: 'old~1#7.2' }
    await parcels().insertMany([
      { _id: 'held', phase: 'Shipping', ...held, progress },
      { _id: 'expired', phase: 'Shipping', lockedAt: new Date(now - 60_000), lockedBy: 'old~1#8.1', progress },
      { _id: 'asleep', phase: 'Shipping', lockedAt: new Date(now + 600_000), progress },
      { _id: 'parked', phase: 'Checking', lockedAt: PARKED_AT, progress },
      { _id: 'owners', phase: 'Shipping', lockedAt: PARKED_AT, progress: 'mine' },
      { _id: 'array', phase: ['Shipping'] as never, lockedAt: PARKED_AT },
    ])
    const before = new Map((await parcels().find().toArray()).map((doc) => [doc._id, doc]))
    const logger = recordingLogger()
    const handlers = v2.handle({
      Packing: async (_doc, step) => step.moveTo('Sending'),
      Sending: async (_doc, step) => step.wait('a van', { for: '1h' }),
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })
    const replica = new Replica({ db: database.db, lifecycles: [handlers], logger })
    await replica.prepare()
    await replica.runOnce()
    const after = new Map((await parcels().find().toArray()).map((doc) => [doc._id, doc]))
    expect(after.get('held')).toEqual(before.get('held'))
    expect(after.get('array')).toEqual(before.get('array'))
    expect(after.get('owners')).toEqual({ ...before.get('owners'), phase: 'Sending' })
    for (const id of ['asleep', 'parked']) {
      const { history, ...rest } = after.get(id)!['progress']
      expect({ ...after.get(id), progress: rest }).toEqual({ ...before.get(id), phase: 'Sending', progress })
      expect(history).toMatchObject([{ outcome: 'rule', by: 'renamed', to: 'Sending' }])
    }
    const taken = after.get('expired')!
    expect(taken).toMatchObject({ phase: 'Sending', progress: { waitingFor: 'a van', since: progress.since } })
    expect(taken).not.toHaveProperty('lockedBy')
    // The late write of the holder before it matches nothing.
    expect(await parcels().countDocuments({ lockedBy: 'old~1#8.1' })).toBe(0)
    expect(logger.lines.filter(({ message }) => message.includes('unknown phase'))).toEqual([])
    const said = explain(before.get('held')!, v2.model, new Date(), 30_000)
    expect(said).toMatch(
      /^Its phase 'Shipping' is called Sending in this version of parcel: the next look moves it there/,
    )
  })

  test('definitions: a target must be declared, a source must not be, also by type', () => {
    const phases = { A: { next: ['B'] }, B: { rest: true } } as const
    const define = (renamed: object) => lifecycleOf<Parcel>().define({ ...settings, phases, renamed } as never)
    expect(() => define({ Old: 'C' })).toThrow(InvalidLifecycle)
    expect(() => define({ Old: 'C' })).toThrow(/renamed 'Old' names an unknown phase 'C'; known: A, B/)
    expect(() => define({ A: 'B' })).toThrow(/renamed 'A' is still declared/)
    expect(() => define({ $x: 'B' })).toThrow(/renamed '\$x' can't be a phase's name/)
    expect(() => define(['A'])).toThrow(/renamed must be an object/)
    // A phase that only documents of an older version come into is reachable.
    const compatible = { ...phases, Odd: { next: ['B'] } } as const
    lifecycleOf<Parcel>().define({ ...settings, phases: compatible, renamed: { Old: 'Odd' } })
    // @ts-expect-error a target that isn't declared
    expect(() => lifecycleOf<Parcel>().define({ ...settings, phases, renamed: { Old: 'C' } })).toThrow()
    // @ts-expect-error a source that is declared
    expect(() => lifecycleOf<Parcel>().define({ ...settings, phases, renamed: { A: 'B' } })).toThrow()
  })
})
