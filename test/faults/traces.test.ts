import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { Collection, Document, MongoClient } from 'mongodb'
import { Claimant, idKey, Renewals, ServerClock, type Terms, WorkSplit } from '../../src/lock/index.js'
import { replicaIdentity } from '../../src/options/index.js'
import {
  ago,
  ClaimsByName,
  checkpoint,
  claimed,
  claimer,
  clientAt,
  endOf,
  failed,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  ManualClock,
  PHASE,
  put,
  serverNow,
  TERMS,
  unlock,
  writer,
} from '../lock/fixture.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { TraceRecorder } from '../support/traces/recorder.js'

/** What the traces of the other tests here are for: each fault that they are to tell of is put back, and told. */
describe('traces tell of', () => {
  const database = useDatabase()
  let direct: Collection
  let proxy: TcpProxy
  let client: MongoClient
  let collection: Collection
  let traces: TraceRecorder

  beforeEach(async () => {
    direct = await lockedCollection(database.db)
    proxy = await TcpProxy.start(database.uri)
    client = await clientAt(proxy.uri, { retryReads: false, retryWrites: false })
    collection = client.db(database.db.databaseName).collection(direct.collectionName)
    traces = TraceRecorder.start(proxy)
  })
  afterEach(async () => {
    traces.stop()
    await client.close()
    await proxy.stop()
  })

  const VALID = async (): Promise<Terms> => ({
    ...TERMS,
    validUntil: new Date((await serverNow(direct)).getTime() + 5_000),
  })
  const told = () => traces.contradictions(direct)

  async function aLease() {
    await put(direct, { _id: 'a', phase: PHASE })
    return (await claimed(collection, await claimer(collection, { terms: await VALID() }))).lease
  }

  test('nothing, where all is well', async () => {
    const lease = await aLease()
    await writer(collection).write([endOf(lease, checkpoint)])
    await writer(collection).write([endOf(lease, unlock)])
    expect(traces.trace()).toMatchObject({ verdicts: [{ verdict: 'recorded' }, { verdict: 'recorded' }], writes: [{}] })
    expect(await told()).toEqual([])
  })

  test('a checkpoint that is said to be recorded and never was', async () => {
    const lease = await aLease()
    const { token } = lease
    // As one that takes endedBy for a proof: it only proves a write after which nobody has the document.
    const credulous = withReads(collection, (document) =>
      document['progress']?.endedBy === token ? { ...document, lockedBy: token.replace(/1$/, '2') } : document,
    )
    const lost = proxy.cutBefore('update')
    const reading = proxy.hold('find')
    const storing = writer(credulous).write([endOf(lease, checkpoint)])
    await lost
    const held = await reading
    await writer(direct).write([endOf(lease, failed)])
    held.release()
    await storing
    expect(await told()).toContain(`checkpoint of a under ${token}: told as recorded, but its history has error by it`)
  })

  test('an outcome that is said to be lost, though nobody has taken the document', async () => {
    const lease = await aLease()
    const { token } = lease
    const stored = proxy.cutAfter('update')
    const reading = proxy.hold('find')
    const storing = writer(collection).write([endOf(lease, checkpoint)])
    await stored
    const held = await reading
    // Beside the checkpoint instead of after it.
    await writer(direct).write([endOf(lease, failed)])
    held.release()
    await storing
    expect(await told()).toEqual([`error of a under ${token}: told as lost, but nobody has taken the document`])
  })

  test('a renewal that says nothing of the age of its terms', async () => {
    const lease = await aLease()
    await new Renewals(collection, () => TERMS, (await claimer(collection)).clock).renew([lease])
    expect(await told()).toEqual(['renewal: was applied, and says nothing of the age of its terms'])
  })

  describe('documents that wait though a replica has room', () => {
    /** One of two replicas goes round its own documents; the other one takes nothing. */
    async function contradictions(shareClock: (clock: ManualClock) => ManualClock): Promise<string[]> {
      const clock = new ManualClock()
      const serverClock = new ServerClock(clock)
      serverClock.saw(await serverNow(direct), clock.monotonicMs())
      const replica = replicaIdentity('r', () => 0)
      const share = new WorkSplit(() => ({ self: replica, replicas: [replica, 'idle~1'] }), shareClock(clock))
      const terms = await VALID()
      const claims = new ClaimsByName({
        collection,
        terms: () => terms,
        claimant: new Claimant(replica),
        clock,
        serverClock,
        workSplit: share,
        random: () => 0,
      })
      const ids = Array.from({ length: 40 }, (_, n) => `d${n}`)
      const own = ids.filter((id) => share.isOwn(idKey(id))).slice(0, 6)
      const others = ids.filter((id) => !share.isOwn(idKey(id))).slice(0, 4)
      await put(
        direct,
        ...[...own, ...others].map((_id) => ({ _id, phase: PHASE, lockedAt: new Date(0), updatedAt: ago(9) })),
      )
      for (let ms = 0; ms < 10_000; ms += 500) {
        await traces.sample(direct, [PHASE], LOCK_TIMEOUT_MS, true, new Date(ms))
        const { claimed: won } = await claims.claimBatch(PHASE, 4)
        await writer(collection).write(won.map(({ lease }) => endOf(lease, unlock)))
        clock.advance(500)
      }
      return told()
    }
    test('a preference that never ends', async () => {
      const told = await contradictions(() => new ManualClock())
      expect(told).toHaveLength(4)
      expect(told[0]).toMatch(/^d\d+: was due for 7500 ms while a replica had room$/)
    })
    test('none, where it ends', async () => {
      expect(await contradictions((clock) => clock)).toEqual([])
    })
  })
})

/** The same collection; what is read is changed on its way. */
function withReads(collection: Collection, change: (document: Document) => Document): Collection {
  return new Proxy(collection, {
    get: (target, name) => {
      if (name !== 'find') return Reflect.get(target, name).bind(target)
      return (...args: Parameters<Collection['find']>) => {
        const cursor = target.find(...args)
        return { toArray: async () => (await cursor.toArray()).map(change) }
      }
    },
  })
}
