import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { Collection, Document, MongoClient } from 'mongodb'
import { protocolCollection } from '../../src/database/index.js'
import type { Lease, StepEnd, Verdict } from '../../src/lock/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { ShiftedClock } from '../support/thing.js'
import { claimer, clientAt, endOf, LOCK_TIMEOUT_MS, lockedCollection, moveTo, PHASE, read, writer } from './fixture.js'

/** Server errors that say nothing about a document, and that go on and on for some. */
describe('a write that fails again and again for no fault of its document', () => {
  const database = useDatabase()
  let proxy: TcpProxy
  let client: MongoClient
  let through: Collection
  let collection: Collection
  let clock: ShiftedClock
  let told: Map<StepEnd, Verdict>
  let errors: number

  beforeEach(async () => {
    collection = await lockedCollection(database.db)
    proxy = await TcpProxy.start(database.uri)
    client = await clientAt(proxy.uri, { retryWrites: false, retryReads: false })
    through = protocolCollection(client.db(database.db.databaseName), collection.collectionName)
    clock = new ShiftedClock()
    told = new Map()
    errors = 0
  })
  afterEach(async () => {
    over?.abort()
    await client.close()
    await proxy.stop()
  })

  async function held(good: number, bad: number): Promise<{ ends: StepEnd[]; of: (kind: string) => StepEnd[] }> {
    // The bad ones first, in the order in which the server goes.
    const ids = [...idsOf('bad', bad), ...idsOf('good', good)]
    await collection.insertMany(ids.map((_id) => ({ _id: _id as never, phase: PHASE })))
    const { claims } = await claimer(collection, { clock })
    const { claimed } = await claims.claimBatch(PHASE, ids.length)
    expect(claimed).toHaveLength(ids.length)
    const ends = claimed
      .map(({ lease }) => endOf(lease, moveTo('Next')))
      .sort((a, b) => String(a.lease.id).localeCompare(String(b.lease.id)))
    return { ends, of: (kind) => ends.filter(({ lease }) => String(lease.id).startsWith(kind)) }
  }
  const idsOf = (kind: string, count: number) => Array.from({ length: count }, (_, n) => `${kind}${n}`)

  /** The server takes no write that has one of the bad ones. */
  function failForBad(reply: Document = { ok: 0, code: 8, codeName: 'UnknownError', errmsg: 'odd' }): void {
    proxy.answerAll(({ name, body }) =>
      name === 'update' && /"bad\d+"/.test(JSON.stringify(body)) ? reply : undefined,
    )
  }

  let over: AbortController | undefined
  function record(ends: readonly StepEnd[]): Promise<unknown> {
    over = new AbortController()
    const one = writer(through, { clock, onRetry: () => (errors += 1), signal: over.signal })
    const recording = one.write(ends, { decided: (end, verdict) => told.set(end, verdict) })
    recording.catch(() => undefined)
    return recording
  }
  const kinds = (ends: readonly StepEnd[]) => [...new Set(ends.map((end) => told.get(end)?.kind))]
  const renew = (leases: readonly Lease[]) => {
    for (const lease of leases) lease.renewed(clock.monotonicMs(), LOCK_TIMEOUT_MS)
  }

  test.each([
    ['alone', 0, 1],
    ['beside a thousand good ones', 1_000, 1],
    ['a hundred of it in front of the good ones', 10, 100],
  ])('%s: the others are recorded at once, it is given up, and nothing of it was written', async (_name, good, bad) => {
    const { ends, of } = await held(good, bad)
    failForBad()
    const recording = record(ends)
    await eventually(() => good === 0 || expect(kinds(of('good'))).toEqual(['recorded']))
    expect(kinds(of('bad'))).toEqual([undefined])
    // Each on its own, and often enough.
    await eventually(() => errors > bad * 6)
    clock.advance(15_000)
    renew(of('bad').map(({ lease }) => lease))
    await recording
    expect(kinds(of('bad'))).toEqual(['givenUp'])
    expect(told.get(of('bad')[0]!)).toMatchObject({ error: { code: 8 } })
    expect(of('bad')[0]!.lease.leftMs()).toBe(0)
    const found = await read(collection, 'bad0')
    expect(found).toMatchObject({ phase: PHASE, lockedBy: of('bad')[0]!.lease.token, progress: { claims: 1 } })
  })

  test('whose lease can’t be renewed either is an outage: it waits, and is recorded when that is over', async () => {
    const { ends, of } = await held(1, 1)
    failForBad({ ok: 0, code: 14_031, codeName: 'OutOfDiskSpace', errmsg: 'full' })
    const recording = record(ends)
    await eventually(() => errors > 8)
    clock.advance(3_600_000)
    const before = errors
    await eventually(() => errors > before + 3)
    expect(kinds(of('bad'))).toEqual([undefined])
    proxy.pass()
    await recording
    expect(kinds(ends)).toEqual(['recorded'])
    expect(await collection.countDocuments({ phase: 'Next' })).toBe(2)
  })

  test('by ending the connection each time: the same', async () => {
    const { ends, of } = await held(5, 1)
    const cut = () => {
      const bad = ({ name, body }: { name: string; body: Document }) =>
        name === 'update' && /"bad/.test(JSON.stringify(body))
      void proxy.cutBefore(bad).then(cut)
    }
    cut()
    const recording = record(ends)
    await eventually(() => expect(kinds(of('good'))).toEqual(['recorded']))
    await eventually(() => errors > 8)
    clock.advance(15_000)
    renew(of('bad').map(({ lease }) => lease))
    await recording
    expect(kinds(of('bad'))).toEqual(['givenUp'])
  })

  test('of which some is always due ends when nobody waits for it any more', async () => {
    const { ends } = await held(0, 2)
    let updates = 0
    proxy.answerAll(({ name }) => {
      if (name !== 'update') return undefined
      updates += 1
      clock.advance(1_000) // as long as a slow answer takes: what failed before it is due again
      return { ok: 0, code: 8, codeName: 'UnknownError', errmsg: 'odd' }
    })
    let failure: unknown
    void record(ends).catch((error: unknown) => (failure = error))
    await eventually(() => updates > 10)
    over!.abort()
    await eventually(() => expect(failure).toMatchObject({ code: 8 }))
    const before = updates
    await collection.findOne({})
    expect(updates).toBe(before)
  })
})
