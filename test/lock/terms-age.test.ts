import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import {
  type EndKind,
  isDue,
  type Lease,
  Renewals,
  removeFinal,
  renameUpdate,
  ruleUpdate,
  type Terms,
  termsOf,
} from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import {
  again,
  ago,
  claimed,
  claimer,
  endOf,
  failed,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  ManualClock,
  moveTo,
  PHASE,
  park,
  put,
  read,
  serverNow,
  TERMS,
  unlock,
  wait,
  writer,
} from './fixture.js'

const validUntil = (ms: number): Terms => termsOf(LOCK_TIMEOUT_MS, { validUntil: new Date(Date.now() + ms) })

/** What a replica has read longer ago than it may go by it: as after a pause, or of a command that hung in the network. */
const OLD = () => validUntil(-60_000)
const FRESH = () => validUntil(60_000)

describe('rule 1 of point 10: what was read is gone by for 5 s, judged by the server', () => {
  const database = useDatabase()

  describe('a renewal', () => {
    async function renewed(terms: Terms) {
      const collection = await lockedCollection(database.db)
      await collection.insertMany(['a', 'b', 'lost'].map((_id) => ({ _id: _id as never, phase: PHASE })))
      const clock = new ManualClock()
      const { claims } = await claimer(collection, { clock })
      const leases = (await claims.claimBatch(PHASE, 10)).claimed.map(({ lease }) => lease)
      await collection.updateMany({}, [{ $set: { lockedAt: ago(20_000) } }])
      await collection.updateOne({ _id: 'lost' as never }, { $set: { lockedBy: 'other#1.1' } })
      const before = await collection.find().toArray()
      clock.advance(20_000)
      const lost = await new Renewals(collection, () => terms, clock).renew(leases)
      const left = Object.fromEntries(leases.map((lease: Lease) => [lease.id, lease.leftMs()]))
      return { lost: lost.map(({ id }) => id), left, before, after: await collection.find().toArray() }
    }
    test('that comes later renews nothing, ages go on; what is lost is told', async () => {
      const { lost, left, before, after } = await renewed(OLD())
      expect(after).toEqual(before)
      expect({ lost, left }).toEqual({ lost: ['lost'], left: { a: 10_000, b: 10_000, lost: 0 } })
    })
    test('in time: renews', async () => {
      const { lost, left } = await renewed(FRESH())
      expect({ lost, left }).toEqual({ lost: ['lost'], left: { a: 30_000, b: 30_000, lost: 0 } })
    })
  })

  const sleeps: [string, EndKind][] = [
    ['wait', wait(60_000)],
    ['wait by its back-off', wait()],
    ['unavailable', { kind: 'unavailable', step: null, reason: 'x', forMs: 60_000 }],
    ['error', failed],
    ['move to a sleep', { ...(moveTo('Next') as object), forMs: 60_000 } as never],
    ['deadline', { kind: 'sleepUntilDeadline', step: null }],
  ]
  async function ended(end: EndKind, terms: Terms, keepTermsFresh?: () => Promise<void>) {
    const collection = await lockedCollection(database.db)
    // It has waited for long, so that it still sleeps when it is counted on a busy machine.
    await put(collection, { _id: 'a', phase: PHASE, updatedAt: ago(100_000) })
    const { lease } = await claimed(collection)
    const wakeBy = new Date((await serverNow(collection)).getTime() + 120_000)
    const ending = endOf(lease, end, { wakeBy, pauseMs: 60_000 })
    const verdicts = await writer(collection, { terms: () => terms, keepTermsFresh }).write([ending])
    const due = await collection.countDocuments({ $expr: isDue(TERMS) })
    return { verdict: verdicts.get(ending)?.kind, due, document: await read(collection, 'a') }
  }
  test.each(sleeps)('an end that sleeps (%s) and comes later is due at once, and recorded', async (_name, end) => {
    expect(await ended(end, OLD())).toMatchObject({ verdict: 'recorded', due: 1 })
    const inTime = await ended(end, FRESH())
    expect(inTime).toMatchObject({ verdict: 'recorded', due: 0 })
    // The same as ever.
    const { lockedAt, progress } = inTime.document
    if (progress.resumeAt) expect(progress.resumeAt.getTime() - lockedAt.getTime()).toBe(LOCK_TIMEOUT_MS)
  })

  test('terms are read again before an end that sleeps, and not for one that doesn’t', async () => {
    const asked = async (end: EndKind, fail = false) => {
      let count = 0
      const keepTermsFresh = async () => {
        count += 1
        if (fail) throw new Error('nobody answers')
      }
      expect(await ended(end, FRESH(), keepTermsFresh)).toMatchObject({ verdict: 'recorded' })
      return count
    }
    for (const [, end] of sleeps) expect(await asked(end)).toBe(1)
    for (const end of [again(), unlock, moveTo('Next'), park]) expect(await asked(end)).toBe(0)
    expect(await asked(wait(60_000), true)).toBe(1)
  })

  test('claims by name, rules, renames and removals that come later match nothing that rests on a lockTimeout', async () => {
    const collection = await lockedCollection(database.db)
    const expired = { lockedAt: ago(60_000), lockedBy: 'x#1.1', state: 'Deleted', progress: { since: ago(60_000) } }
    await put(
      collection,
      ...[PHASE, 'Final'].flatMap((phase) => ['a', 'b'].map((id) => ({ _id: `${id} ${phase}`, phase, ...expired }))),
    )
    const before = await collection.find().toArray()
    const ids = before.map(({ _id }) => _id)
    const all = async (terms: Terms): Promise<Document> => {
      const { claims, serverClock } = await claimer(collection, { terms })
      const dueBound = serverClock.dueBound(LOCK_TIMEOUT_MS)!
      const removal = { phase: 'Final', limit: 10, dueBound, random: () => 0.5 }
      const rule = { when: 'Deleted', from: [PHASE], moveTo: 'Deleting' }
      const matching = async ([filter]: [Document, Document[]]) => collection.countDocuments(filter)
      const rename = { from: PHASE, to: 'Other' }
      return {
        ruled: await matching(ruleUpdate(terms, rule, ids)),
        renamed: await matching(renameUpdate(terms, rename, ids)),
        armed: await removeFinal(collection, terms, { ...removal, keepForMs: 3_600_000 }),
        removed: await removeFinal(collection, terms, { ...removal, keepForMs: 0 }),
        claimed: (await claims.claimNamed(PHASE, ids)).claimed.length,
      }
    }
    const nothing = { removed: 0, armed: 0, quarantined: [], refused: [] }
    expect(await all(OLD())).toEqual({ ruled: 0, renamed: 0, armed: nothing, removed: nothing, claimed: 0 })
    expect(await collection.find().toArray()).toEqual(before)
    const armed = { removed: 0, armed: 2, quarantined: [], refused: [] }
    expect(await all(FRESH())).toEqual({ ruled: 2, renamed: 2, armed, removed: nothing, claimed: 2 })
  })

  describe('a claim whose admission took seconds', () => {
    const admitting = (before: () => void) => ({
      full: () => [],
      admit: async (documents: readonly Document[]) => {
        before()
        return documents
      },
      hasKeys: false,
      isExhausted: false,
    })
    const due = async () => {
      const collection = await lockedCollection(database.db)
      await collection.insertOne({ _id: 'a' as never, phase: PHASE, lockedAt: new Date(0) })
      return collection
    }

    test('goes by terms that are read after it', async () => {
      let terms = FRESH()
      const keepTermsFresh = async () => {
        terms = FRESH()
      }
      const { claims } = await claimer(await due(), { termsOf: () => terms, keepTermsFresh })
      const admission = admitting(() => {
        terms = OLD()
      })
      expect((await claims.claimBatch(PHASE, 1, undefined, [], admission)).claimed).toHaveLength(1)
    })

    test('sends no claim after the replica has begun to stop', async () => {
      let isOver = false
      const collection = await due()
      const { claims } = await claimer(collection, { isOver: () => isOver })
      const admission = admitting(() => {
        isOver = true
      })
      expect((await claims.claimBatch(PHASE, 1, undefined, [], admission)).claimed).toEqual([])
      expect(await collection.findOne({})).not.toHaveProperty('lockedBy')
    })
  })
})
