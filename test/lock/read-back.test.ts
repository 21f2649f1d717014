import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { BSON, type Collection, type Document, type MongoClient } from 'mongodb'
import { protocolCollection } from '../../src/database/index.js'
import type { EndKind, Lease, StepEnd, Verdict } from '../../src/lock/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import {
  again,
  ago,
  claimed,
  claimer,
  clientAt,
  ENDS,
  endOf,
  failed,
  lockedCollection,
  moveTo,
  PHASE,
  put,
  read,
  unlock,
  wait,
  writer,
} from './fixture.js'

describe('after a write whose outcome is unknown', () => {
  const database = useDatabase()
  let proxy: TcpProxy
  let client: MongoClient
  /** What the holder writes through; everything else goes to the server directly. */
  let through: Collection
  let collection: Collection
  let end: StepEnd

  beforeEach(async () => {
    collection = await lockedCollection(database.db)
    proxy = await TcpProxy.start(database.uri)
    await writeThrough(20_000)
  })
  afterEach(async () => {
    await proxy.stop()
    await client.close()
  })
  /** @param limitMs how long a command may take: short where a test waits for the driver to give up, and only there */
  async function writeThrough(limitMs: number): Promise<void> {
    const waits = { socketTimeoutMS: limitMs, serverSelectionTimeoutMS: limitMs, minHeartbeatFrequencyMS: 25 }
    client = await eventually(() => clientAt(proxy.uri, { retryWrites: false, retryReads: false, ...waits }))
    through = protocolCollection(client.db(database.db.databaseName), collection.collectionName)
  }
  async function writeImpatiently(): Promise<void> {
    await client.close()
    await writeThrough(1_000)
  }

  async function leased(ids: readonly string[]): Promise<Lease[]> {
    await put(collection, ...ids.map((_id) => ({ _id, phase: PHASE })))
    const { claims } = await claimer(collection)
    return (await claims.claimBatch(PHASE, ids.length)).claimed.map((one) => one.lease)
  }
  async function holding(kind: EndKind): Promise<StepEnd> {
    await put(collection, { _id: 'a', phase: PHASE })
    const { lease } = await claimed(collection)
    end = endOf(lease, kind, { set: { n: 1 } })
    return end
  }
  const errors: unknown[] = []
  const record = async (ends: StepEnd[] = [end]): Promise<Verdict[]> => {
    errors.length = 0
    const verdicts = await writer(through, { onRetry: (error) => errors.push(error) }).write(ends)
    return ends.map((one) => verdicts.get(one)!)
  }
  const outcomes = async (): Promise<Document[]> => (await read(collection, 'a'))['progress'].history ?? []

  /** The lease passes, and another replica claims; with `ends` it also lets go. */
  async function takenByAnother(ends: boolean): Promise<Document> {
    await collection.updateOne({ _id: 'a' as never }, [{ $set: { lockedAt: ago(31_000), phase: PHASE } }])
    const other = await claimed(collection)
    if (ends) await writer(collection).write([endOf(other.lease, wait(60_000))])
    return read(collection, 'a')
  }

  test.each(ENDS)('%s, not executed: it is sent again, and recorded once', async (_name, kind) => {
    await holding(kind)
    void proxy.cutBefore('update')
    expect(await record()).toEqual([{ kind: 'recorded' }])
    expect(errors).toHaveLength(1)
    expect(await outcomes()).toHaveLength(1)
    expect(await read(collection, 'a')).toMatchObject({ n: 1 })
  })

  test.each(ENDS)('%s, executed: it is not sent again, and recorded once', async (_name, kind) => {
    await holding(kind)
    const { fence } = end.lease
    void proxy.cutAfter('update')
    expect(await record()).toEqual([{ kind: 'recorded' }])
    expect(proxy.count('update')).toBe(1)
    expect(await outcomes()).toHaveLength(1)
    const document = await read(collection, 'a')
    if (kind.kind === 'again' || kind.kind === 'checkpoint') {
      if (kind !== unlock) expect(document).toMatchObject({ lockedBy: end.lease.token, fence: end.lease.fence })
    }
    if (kind.kind === 'checkpoint') expect(end.lease.fence).toBe(fence)
  })

  test.each(ENDS.filter(([, kind]) => kind.kind !== 'again' && kind.kind !== 'checkpoint'))(
    '%s, executed, and another holds it by now: recorded, because claims keep endedBy',
    async (_name, kind) => {
      await holding(kind)
      void proxy.cutAfter('update')
      const reading = proxy.hold('find')
      const recording = record()
      const held = await reading
      const other = await takenByAnother(false)
      held.release()
      expect(await recording).toEqual([{ kind: 'recorded' }])
      expect(await read(collection, 'a')).toEqual(other)
    },
  )

  test.each(ENDS)(
    '%s, executed, then another claimed and ended: moved on, and nothing is written',
    async (_n, kind) => {
      await holding(kind)
      void proxy.cutAfter('update')
      const reading = proxy.hold('find')
      const recording = record()
      const held = await reading
      const other = await takenByAnother(true)
      held.release()
      expect(await recording).toEqual([{ kind: 'movedOn' }])
      expect(await read(collection, 'a')).toEqual(other)
      expect(end.lease.leftMs()).toBe(0)
    },
  )

  test.each(ENDS)('%s, not executed, and another holds it by now: moved on, never lost', async (_name, kind) => {
    await holding(kind)
    void proxy.cutBefore('update')
    const reading = proxy.hold('find')
    const recording = record()
    const held = await reading
    const other = await takenByAnother(false)
    held.release()
    expect(await recording).toEqual([{ kind: 'movedOn' }])
    expect(await read(collection, 'a')).toEqual(other)
  })

  test('the document is gone: moved on', async () => {
    await holding(moveTo('Next'))
    void proxy.cutAfter('update')
    const reading = proxy.hold('find')
    const recording = record()
    const held = await reading
    await collection.deleteMany({})
    held.release()
    expect(await recording).toEqual([{ kind: 'movedOn' }])
  })

  test.each(ENDS)('%s: a resend that matches 0, as the first came after all, counts as recorded', async (_n, kind) => {
    await writeImpatiently()
    await holding(kind)
    const first = proxy.hold('update')
    const second = proxy.hold('update', 2)
    const recording = record()
    const late = await first // the driver gives up on it after its socket timeout
    const resend = await second
    late.release()
    await eventually(async () => (await outcomes()).length === 1)
    resend.release()
    expect(await recording).toEqual([{ kind: 'recorded' }])
    expect(await outcomes()).toHaveLength(1)
    const { lockedBy } = await read(collection, 'a')
    if (lockedBy !== undefined) expect(lockedBy).toBe(end.lease.token)
  })

  test('a first write that arrives after its resend was recorded changes nothing', async () => {
    await writeImpatiently()
    await holding(again())
    const first = proxy.hold('update')
    const recording = record()
    const late = await first
    expect(await recording).toEqual([{ kind: 'recorded' }])
    const recorded = await read(collection, 'a')
    late.release()
    // The same connection's answer would come before this: the server is asked until the late one must have been executed.
    await eventually(async () => proxy.count('update') >= 2)
    await collection.updateOne({ _id: 'probe' as never }, { $set: { x: 1 } }, { upsert: true })
    expect(await read(collection, 'a')).toEqual(recorded)
  })

  test('the read-back fails too: it goes on asking until it is answered, and guesses nothing', async () => {
    await holding(moveTo('Next'))
    void proxy.cutAfter('update')
    void proxy.cutBefore('find')
    void proxy.cutAfter('find', 2)
    expect(await record()).toEqual([{ kind: 'recorded' }])
    expect(errors.length).toBeGreaterThanOrEqual(3)
    expect(await outcomes()).toHaveLength(1)
  })

  const unknownErrors: [string, number][] = [
    ['ShutdownInProgress', 91],
    ['NotWritablePrimary', 10107],
    ['Interrupted (killOp)', 11601],
    ['InterruptedDueToReplStateChange', 11602],
    ['LockTimeout', 24],
    ['MaxTimeMSExpired', 50],
    ['WriteConflict', 112],
    ['OutOfDiskSpace', 14031],
    ['QueryPlanKilled', 175],
    ['InternalError', 1],
    ['BadValue: a missing index', 2],
    ['UnknownError', 8],
    ['LockFailed', 107],
    ['ExceededMemoryLimit', 146],
    ['TransactionExceededLifetimeLimitSeconds', 290],
    ['TemporarilyUnavailable', 365],
    ['ResourceLimits', 371],
    ['IngressRequestRateLimitExceeded', 462],
    ['one that nobody knows', 987_654],
  ]
  test.each(unknownErrors)('%s (%d) is no fault of the document: read back and sent again', async (codeName, code) => {
    await holding(moveTo('Next'))
    void proxy.answer('update', { ok: 0, code, codeName, errmsg: 'not now' })
    expect(await record()).toEqual([{ kind: 'recorded' }])
    expect(proxy.count('update')).toBe(2)
  })

  test('asks the primary for what the majority has', async () => {
    await holding(moveTo('Next'))
    void proxy.cutBefore('update')
    expect(await record()).toEqual([{ kind: 'recorded' }])
    const { body } = proxy.seen.find(({ name }) => name === 'find')!
    expect(body).toMatchObject({ readConcern: { level: 'majority' }, hint: { _id: 1 } })
    expect(body['$readPreference']?.mode ?? 'primary').toMatch(/^primary/)
  })

  test.each(ENDS.filter(([name]) => name === 'checkpoint' || name === 'again'))(
    '%s, not executed, and the document let go under the same token meanwhile: never taken as recorded',
    async (_name, kind) => {
      await holding(kind)
      void proxy.cutBefore('update')
      const reading = proxy.hold('find')
      const recording = record()
      const held = await reading
      await writer(collection).write([endOf(end.lease, wait())])
      held.release()
      expect(await recording).toEqual([{ kind: 'movedOn' }])
      expect(await read(collection, 'a')).not.toHaveProperty('n')
    },
  )

  test('a late first write that was refused when it was sent again is not taken for what was written instead', async () => {
    await writeImpatiently()
    await holding(moveTo('Next'))
    const one = writer(through)
    const verdictOn = async (kind: EndKind) => {
      const ended = endOf(end.lease, kind)
      return (await one.write([ended])).get(ended)
    }
    const first = proxy.hold('update')
    void proxy.answer('update', { ok: 0, code: 121, codeName: 'DocumentValidationFailure', errmsg: 'no' }, 2)
    const third = proxy.hold('update', 3)
    const moved = verdictOn(moveTo('Next'))
    const late = await first
    expect(await moved).toMatchObject({ kind: 'rejected' })
    const error = verdictOn(failed)
    const held = await third
    late.release()
    await eventually(async () => (await outcomes()).length === 1)
    held.release()
    expect(await error).toEqual({ kind: 'lost' })
    expect((await outcomes()).map(({ outcome }) => outcome)).toEqual(['moveTo'])
  })

  test("an owner's value that no driver can read hides nothing", async () => {
    const leases = await leased(['a', 'b'])
    void proxy.cutBefore('update')
    const reading = proxy.hold('find')
    const recording = record(leases.map((lease) => endOf(lease, wait())))
    const held = await reading
    // As PyMongo writes it: BSON takes it, JavaScript doesn't.
    const regex = new BSON.BSONRegExp('(?P<id>x)')
    await collection.updateOne({ _id: 'b' as never }, { $set: { lockedBy: regex, 'progress.endedBy': regex } })
    held.release()
    expect(await recording).toEqual([{ kind: 'recorded' }, { kind: 'movedOn' }])
  })

  test('a write concern error says nothing about the write: read back', async () => {
    await holding(moveTo('Next'))
    const writeConcernError = { code: 64, codeName: 'WriteConcernTimeout', errmsg: 'waiting for replication timed out' }
    void proxy.answer('update', { ok: 1, n: 1, nModified: 1, writeConcernError })
    expect(await record()).toEqual([{ kind: 'recorded' }])
    expect(await outcomes()).toHaveLength(1)
  })

  test('a server that is away for longer: retried until it is back', async () => {
    await writeImpatiently()
    await holding(wait())
    proxy.refuse()
    const recording = record()
    await eventually(() => errors.length >= 2)
    proxy.pass()
    expect(await recording).toEqual([{ kind: 'recorded' }])
    expect(await outcomes()).toHaveLength(1)
  })

  test('nobody waits for the verdict any more: the last error is thrown, nothing is guessed', async () => {
    await writeImpatiently()
    await holding(wait())
    proxy.refuse()
    const over = new AbortController()
    const recording = writer(through, { signal: over.signal, onRetry: () => over.abort() }).write([end])
    await expect(recording).rejects.toThrow()
    expect(await outcomes()).toHaveLength(0)
  })

  test('a group of which one was taken meanwhile: the others recorded, that one moved on', async () => {
    const leases = await leased(['a', 'b', 'c'])
    const ends = leases.map((lease) => endOf(lease, again()))
    void proxy.cutBefore('update')
    const reading = proxy.hold('find')
    const recording = record(ends)
    const held = await reading
    await collection.updateOne({ _id: leases[1]!.id as never }, { $set: { lockedBy: 'other#1.1' } })
    held.release()
    expect(await recording).toEqual([{ kind: 'recorded' }, { kind: 'movedOn' }, { kind: 'recorded' }])
  })

  /**
   * Two ends whose first write is late: its resend is refused, and the first of the halves that follow is held until the late one
   * has been recorded.
   */
  async function lateBeforeHalves() {
    await writeImpatiently()
    const leases = await leased(['a', 'b'])
    const first = proxy.hold('update')
    void proxy.answer('update', { ok: 0, code: 121, codeName: 'DocumentValidationFailure', errmsg: 'no' }, 2)
    const third = proxy.hold('update', 3)
    const recording = record(leases.map((lease) => endOf(lease, again())))
    const late = await first
    const half = await third
    late.release()
    await eventually(async () => (await outcomes()).length === 1)
    return { leases, recording, half }
  }

  test('a first write that arrives between a refused resend and its halves: recorded, under the token that it set', async () => {
    const { leases, recording, half } = await lateBeforeHalves()
    half.release()
    expect(await recording).toEqual([{ kind: 'recorded' }, { kind: 'recorded' }])
    for (const lease of leases) expect((await read(collection, lease.id))['lockedBy']).toBe(lease.token)
  })

  test('an unknown first write, a refused resend, and then another holder: moved on, as the first may have been recorded', async () => {
    const { recording, half } = await lateBeforeHalves()
    await collection.updateMany({}, { $set: { lockedBy: 'other#1.1' } })
    half.release()
    expect(await recording).toEqual([{ kind: 'movedOn' }, { kind: 'movedOn' }])
  })
})
