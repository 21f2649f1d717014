import { describe, expect, test } from '@jest/globals'
import {
  changeLockTimeout,
  checkPlans,
  encodeSleepsAnew,
  KNOWN_FOR_MS,
  LIFECYCLES_COLLECTION,
  type LockTimeoutInForce,
  Looks,
  lockTimeoutAt,
  PARKED_AT,
  ruleUpdate,
  ServerClock,
  termsOf,
} from '../../src/lock/index.js'
import { HANDOVER_MS } from '../../src/lock/registry/in-force.js'
import { systemClock } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import { ago, claimer, lockedCollection, PHASE, put, read } from './fixture.js'

const ANNOUNCED = 1_000_000
const SHORT = 3_000
const LONG = 12_000
/** The announcement may take so long until everybody reads it. */
const VISIBLE_WITHIN_MS = 3_000

type Rule = (nowMs: number, was: number, is: number) => Pick<LockTimeoutInForce, 'dueMs' | 'leaseMs'>

const handover: Rule = (nowMs, was, is) => {
  const record = { lockTimeout: is, lockTimeoutWas: was, lockTimeoutSince: new Date(ANNOUNCED) }
  return nowMs < ANNOUNCED ? { dueMs: was, leaseMs: was } : lockTimeoutAt(record, new Date(nowMs))!
}
const atOnce: Rule = (nowMs, was, is) => {
  const ms = nowMs < ANNOUNCED ? was : is
  return { dueMs: ms, leaseMs: ms }
}

/**
 * All pairs of a holder and a claimer that read phaselock.lifecycles at any two moments, each using what it read for up to
 * KNOWN_FOR_MS, and reading the old value for up to 3 s after the announcement: how many claims take a document whose holder
 * still believes in its lease.
 */
function stolen(rule: Rule, was: number, is: number): number {
  const stepMs = 500
  const moments = Array.from({ length: 180_000 / stepMs }, (_, i) => ANNOUNCED - 60_000 + i * stepMs)
  const readings = moments.flatMap((at) => {
    const fresh = { at, ...rule(at, was, is) }
    const sawOld = at >= ANNOUNCED && at < ANNOUNCED + VISIBLE_WITHIN_MS
    return sawOld ? [fresh, { at, ...rule(ANNOUNCED - 1, was, is) }] : [fresh]
  })
  let count = 0
  for (const holder of readings) {
    for (const claim of readings) {
      // The lease begins at s in [holder.at, + KNOWN_FOR], the claim is executed at x in [claim.at, + KNOWN_FOR]: it takes the
      // document if x - s > due, which it may not do while x - s < lease.
      const shortest = claim.at - (holder.at + KNOWN_FOR_MS)
      const longest = claim.at + KNOWN_FOR_MS - holder.at
      if (Math.max(shortest, claim.dueMs) < Math.min(longest, holder.leaseMs)) count += 1
    }
  }
  return count
}

describe('changing the lockTimeout in force', () => {
  const database = useDatabase()
  const lifecycles = () => database.db.collection<{ _id: string; lockTimeout: number }>(LIFECYCLES_COLLECTION)

  test('longer: judged by at once, believed in after the handover; shorter: the other way round', () => {
    const at = (ms: number, was: number, is: number) => handover(ANNOUNCED + ms, was, is)
    expect(at(0, SHORT, LONG)).toMatchObject({ dueMs: LONG, leaseMs: SHORT })
    expect(at(HANDOVER_MS - 1, SHORT, LONG)).toMatchObject({ dueMs: LONG, leaseMs: SHORT })
    expect(at(HANDOVER_MS, SHORT, LONG)).toMatchObject({ dueMs: LONG, leaseMs: LONG })
    expect(at(0, LONG, SHORT)).toMatchObject({ dueMs: LONG, leaseMs: SHORT })
    expect(at(HANDOVER_MS + LONG - 1, LONG, SHORT)).toMatchObject({ dueMs: LONG, leaseMs: SHORT })
    expect(at(HANDOVER_MS + LONG, LONG, SHORT)).toMatchObject({ dueMs: SHORT, leaseMs: SHORT })
    expect(lockTimeoutAt({ lockTimeout: 7_000 }, new Date(0))).toMatchObject({ dueMs: 7_000, leaseMs: 7_000 })
  })

  test.each([
    ['longer', SHORT, LONG],
    ['shorter', LONG, SHORT],
  ])('%s: no claim takes a document whose holder believes in its lease, whoever read what when', (_, was, is) => {
    expect(stolen(handover, was, is)).toBe(0)
    // Negative control: everybody takes over what he reads when he reads it.
    expect(stolen(atOnce, was, is)).toBeGreaterThan(0)
  })

  test('a claim or rule that is executed after what it goes by has come of age matches nothing', async () => {
    const collection = await lockedCollection(database.db)
    await put(
      collection,
      { _id: 'a', phase: PHASE },
      { _id: 'b', phase: PHASE, lockedAt: ago(60_000), lockedBy: 'x#1.1' },
    )
    const old = termsOf(30_000, { validUntil: new Date(Date.now() - 60_000) })
    const late = await claimer(collection, { terms: old })
    expect((await late.claims.claimBatch(PHASE, 1)).claimed).toEqual([])
    expect((await late.claims.claimBatch(PHASE, 10)).claimed).toEqual([])
    const rule = { when: 'Deleted', from: [PHASE], moveTo: 'Deleting' }
    await collection.updateMany({}, { $set: { state: 'Deleted' } })
    // Nobody holds `a`, whatever the lockTimeout is.
    expect((await collection.updateMany(...ruleUpdate(old, rule, ['a', 'b']))).modifiedCount).toBe(1)
    expect(await read(collection, 'b')).toMatchObject({ phase: PHASE, lockedBy: 'x#1.1' })
    const fresh = await claimer(collection, { terms: termsOf(30_000, { validUntil: new Date(Date.now() + 60_000) }) })
    expect((await fresh.claims.claimBatch(PHASE, 10)).claimed.map(({ lease }) => lease.id)).toEqual(['b'])
  })

  test('claims and looks that carry that condition are bounded scans', async () => {
    await lockedCollection(database.db)
    await lifecycles().insertOne({ _id: 'thing', lockTimeout: 30_000 })
    const serverClock = new ServerClock(systemClock)
    const terms = termsOf(30_000, { validUntil: new Date(Date.now() + 60_000) })
    const request = {
      lifecycle: 'thing',
      collection: 'Thing',
      terms,
      phases: [PHASE],
      rules: [{ when: 'Deleted', from: [PHASE], moveTo: 'Deleting' }],
      renames: [{ from: 'Old', to: PHASE }],
    }
    for (const legacyWriters of [false, true]) {
      const requests = [{ ...request, terms: { ...terms, legacyWriters } }]
      const looks = new Looks(database.db, systemClock, serverClock)
      expect(await checkPlans({ db: database.db, looks, serverClock, requests })).toEqual([])
    }
  })

  test('one change at a time; unknown lifecycles and equal values are values, not errors', async () => {
    const change = (ms: number) => changeLockTimeout(database.db, 'thing', ms)
    expect(await change(10_000)).toEqual({ kind: 'notRegistered' })
    await lifecycles().insertOne({ _id: 'thing', lockTimeout: 30_000 })
    expect(await change(30_000)).toEqual({ kind: 'unchanged' })
    const changed = await change(10_000)
    if (changed.kind !== 'changed') throw new Error(`expected a change, got ${changed.kind}`)
    expect(changed.wasMs).toBe(30_000)
    expect(changed.inForceFrom.getTime() - changed.now.getTime()).toBe(HANDOVER_MS + 30_000)
    expect(await change(20_000)).toMatchObject({ kind: 'underWay', until: changed.inForceFrom })
    // Time passes.
    await lifecycles().updateOne({ _id: 'thing' }, { $set: { lockTimeoutSince: new Date(0) } } as never)
    const [one, other] = await Promise.all([change(20_000), change(25_000)])
    expect([one.kind, other.kind].sort()).toEqual(['changed', 'underWay'])
  })

  test('sleeping documents wake when they were meant to; held, parked, free and foreign ones are left alone', async () => {
    const collection = await lockedCollection(database.db)
    const resumeAt = new Date(Date.now() + 120_000)
    const asleep = { phase: PHASE, lockedAt: new Date(resumeAt.getTime() - SHORT), progress: { resumeAt } }
    await put(
      collection,
      { _id: 'asleep', ...asleep },
      { _id: 'held', ...asleep, lockedBy: 'x#1.1' },
      { _id: 'parked', ...asleep, lockedAt: PARKED_AT },
      { _id: 'free', phase: PHASE },
      { _id: 'array', ...asleep, lockedAt: [asleep.lockedAt] },
      { _id: 'foreign', ...asleep, phase: 'Other' },
      { _id: 'inserted asleep', phase: PHASE, lockedAt: asleep.lockedAt },
    )
    const before = await collection.find({ _id: { $ne: 'asleep' as never } }).toArray()
    expect(await encodeSleepsAnew(collection, termsOf(LONG), [PHASE], SHORT)).toBe(1)
    expect((await read(collection, 'asleep'))['lockedAt']).toEqual(new Date(resumeAt.getTime() - LONG))
    expect(await collection.find({ _id: { $ne: 'asleep' as never } }).toArray()).toEqual(before)
  })
})
