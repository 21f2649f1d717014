import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { type BrokenDocument } from '../../src/index.js'
import { PARKED_AT } from '../../src/lock/index.js'
import { checkStuck } from '../../src/operations/check/check-documents.js'
import { explain } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { backDate, replicaOf, thing, things, thingWith } from '../support/thing.js'
import { serverNow } from './fixture.js'

const DEAD = 'dead~1#1.1'

describe('lockedAt 9999-12-31 under a lease', () => {
  const database = useDatabase()
  const read = async (id = 'a') => (await things(database.db).findOne({ _id: id })) as Document
  const said = async () => explain(await read(), thing.model, await serverNow(database.db.collection('Thing')), 30_000)

  function replica() {
    const events: BrokenDocument[] = []
    const observer = { broken: (event: BrokenDocument) => void events.push(event) }
    const handled = thingWith(async (_doc, step) => step.moveTo('Created'))
    return { one: replicaOf(database.db, handled, { observer }), events }
  }

  test.each([1, 250])(
    'of a dead holder: a lease from now, which runs out like any other (%d of them)',
    async (count) => {
      const lockedAt = PARKED_AT
      const others = Array.from({ length: count - 1 }, (_, i) => ({
        _id: `b${i}`,
        phase: 'Creating',
        lockedAt,
        lockedBy: DEAD,
      }))
      await things(database.db).insertMany([...others, { _id: 'a', phase: 'Creating', lockedAt, lockedBy: DEAD }])
      expect(await said()).toMatch(
        /^Its shape is broken: 'lockedAt' is 9999-12-31 under a lease of dead~1#1\.1, expected a date, or nothing; replicas look for such documents/,
      )
      const before = await serverNow(database.db.collection('Thing'))
      // A hundred a look.
      for (let look = 0; look < Math.ceil(count / 100); look += 1) {
        const { one, events } = replica()
        await one.runOnce()
        expect(events[0]).toMatchObject({ reason: 'lockedAt', found: '9999-12-31 under a lease', fate: 'mended' })
      }
      expect(await things(database.db).countDocuments({ lockedAt: { $gte: before, $lt: PARKED_AT } })).toBe(count)
      expect(await read()).toMatchObject({ phase: 'Creating', lockedBy: DEAD })
      expect(await said()).toMatch(/^Held by dead~1/)
      await backDate(database.db, 'a', 31_000)
      await replica().one.runOnce()
      expect(await read()).toMatchObject({ phase: 'Created' })
    },
  )

  test('what is parked, or is its owner’s, stays as it is', async () => {
    const parked = [
      { _id: 'a', phase: 'Creating', lockedAt: PARKED_AT },
      { _id: 'b', phase: 'Creating', lockedAt: PARKED_AT, lockedBy: null },
      { _id: 'c', phase: 'Creating', lockedAt: PARKED_AT, lockedBy: DEAD, progress: 'mine' },
    ]
    await things(database.db).insertMany(parked as never)
    const { one, events } = replica()
    await one.runOnce()
    expect(await things(database.db).find().toArray()).toEqual(parked)
    expect(events).toEqual([])
    expect(await said()).toMatch(/^Parked because/)
  })

  test('check finds it, and check --repair mends it at once', async () => {
    const { one } = replica()
    await one.prepare()
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', lockedAt: PARKED_AT, lockedBy: DEAD })
    const check = (repair: boolean) =>
      checkStuck({ db: database.db, models: [thing.model], termsOf: () => one.terms(thing.model), repair })
    const { findings } = await check(false)
    expect(findings[0]?.problem).toMatch(/^1 document with a lockedAt that never comes due \(a\)/)
    await check(true)
    expect((await check(false)).findings).toEqual([])
    expect((await read())['lockedAt']).not.toEqual(PARKED_AT)
  })
})
