import { expect, test } from '@jest/globals'
import { type Document, MongoClient } from 'mongodb'
import { protocolClientOptions } from '../../src/database/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { type HeldCommand, TcpProxy } from '../support/tcp-proxy.js'
import { recordingLogger, recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'
import { TraceRecorder } from '../support/traces/recorder.js'
import { refuseUnhandledRejections } from './unhandled.js'

/** Long enough for a renewal on a machine that stands still for seconds. */
const LOCK_TIMEOUT_MS = 9_000
const database = useDatabase()
refuseUnhandledRejections()

test('handlers that hog a pool of two: renewals go on, nobody takes their documents, and all else goes on afterwards', async () => {
  const proxy = await TcpProxy.start(database.uri)
  const traces = TraceRecorder.start(proxy)
  const clientOf = (uri: string, maxPoolSize: number, socketTimeoutMS = 0) =>
    new MongoClient(uri, { ...protocolClientOptions(LOCK_TIMEOUT_MS), maxPoolSize, socketTimeoutMS }).connect()
  const [hogged, renewals, other] = await Promise.all([
    clientOf(proxy.uri, 2),
    clientOf(proxy.uri, 1),
    clientOf(database.uri, 5),
  ])
  const name = database.db.databaseName
  const ran: string[] = []
  const lifecycle = thingOf({ lockTimeout: `${LOCK_TIMEOUT_MS}ms` })
  const handling = thingWith(async (doc, step) => {
    ran.push(doc._id)
    // The handler's own command over the same pool: the proxy keeps it.
    if (doc._id.startsWith('hog')) await hogged.db(name).collection('slow').countDocuments()
    return step.moveTo('Created', { set: { n: (doc.n ?? 0) + 1 } })
  }, lifecycle)
  const [log, observer] = [recordingLogger(), recordingObserver()]
  const replica = replicaOf(hogged.db(name), handling, {
    name: 'hogged',
    renewalDb: renewals.db(name),
    logger: log,
    observer,
    grace: '100ms',
  })
  const rival = replicaOf(other.db(name), handling, { name: 'rival' })
  try {
    const isSlow = ({ body }: { body: Document }) => body['aggregate'] === 'slow'
    const held = [1, 2].map((nth) => proxy.hold(isSlow, nth))
    await things(database.db).insertMany([
      { _id: 'hog1', phase: 'Creating' },
      { _id: 'hog2', phase: 'Creating' },
    ])
    await replica.start()
    const hogs: HeldCommand[] = await Promise.all(held)
    await rival.start()
    await things(database.db).insertOne({ _id: 'late', phase: 'Creating' })
    // For longer than a lease nobody but the renewals gets a connection.
    const leasedAt = async () => (await things(database.db).findOne({ _id: 'hog1' }))?.['lockedAt'] as Date
    const first = await leasedAt()
    await eventually(async () => (await leasedAt()).getTime() > first.getTime() + 1.2 * LOCK_TIMEOUT_MS, {
      timeoutMs: 60_000,
    })
    await eventually(() =>
      expect(replica.status()).toMatchObject({ running: 2, notReady: ['the database does not answer'] }),
    )
    await eventually(async () => (await things(database.db).findOne({ _id: 'late' }))?.['phase'] === 'Created')
    for (const hog of hogs) hog.release()
    await eventually(async () => (await things(database.db).countDocuments({ phase: 'Created' })) === 3)
    await eventually(() => expect(replica.status()).toMatchObject({ held: 0, notReady: [] }))
    expect(ran.sort()).toEqual(['hog1', 'hog2', 'late'])
    expect(observer.losses).toEqual([])
    // The rival's claims didn't go by the proxy.
    expect((await traces.contradictions(things(database.db))).filter((one) => !one.includes('is believed'))).toEqual([])
    // The tick and the lifecycle tell of an outage with six lines a minute at most each.
    expect(log.lines.length).toBeLessThanOrEqual(12)
  } finally {
    traces.stop()
    await Promise.all([replica.stop(), rival.stop()])
    await Promise.all([hogged.close(), renewals.close(), other.close()])
    await proxy.stop()
  }
})
