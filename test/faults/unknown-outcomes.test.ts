import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { type Db, type Document, MongoClient } from 'mongodb'
import { protocolClientOptions } from '../../src/database/index.js'
import type { Replica } from '../../src/index.js'
import type { HistoryEntry } from '../../src/lock/index.js'
import { sleep, systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { type CreatingHandler, recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'
import { refuseUnhandledRejections } from './unhandled.js'

const LOCK_TIMEOUT_MS = 3_000
const lifecycle = thingOf({ lockTimeout: `${LOCK_TIMEOUT_MS}ms` })

type Command = { name: string; body: Document }

/** Whether a command writes this outcome: its history entry says so. */
const writes = (outcome: string) => (command: Command) =>
  command.name === 'update' && JSON.stringify(command.body).includes(`"outcome":{"$literal":"${outcome}"}`)
const isClaim = ({ name, body }: Command) =>
  (name === 'update' || name === 'findAndModify') && /"lockedBy":.*"claims":\{"\$add"/.test(JSON.stringify(body))
const isRenewal = ({ name, body }: Command) =>
  name === 'update' && /^\[\{"\$set":\{"lockedAt":\{"\$max"/.test(JSON.stringify(body['updates']?.[0]?.u))
const isRemoval = ({ name }: Command) => name === 'delete'

interface Case {
  readonly matching: (command: Command) => boolean
  readonly handler: CreatingHandler
  /** Documents there before the replica starts. */
  readonly given?: Document[]
  /** How the document ends, null: removed. */
  readonly becomes: Document | null
  /** How often each outcome must stand in its history. */
  readonly outcomes: Record<string, number>
  /** How often the handler runs. */
  readonly runs: number
}

const NEW = [{ _id: 'a', phase: 'Creating' }]
const done: CreatingHandler = async (_doc, step) => step.moveTo('Created', { set: { n: 1 } })

const CASES: Record<string, Case> = {
  claim: { matching: isClaim, handler: done, becomes: { phase: 'Created', n: 1 }, outcomes: { moveTo: 1 }, runs: 1 },
  again: {
    matching: writes('again'),
    handler: async (doc, step) => (doc.n ? step.moveTo('Created') : step.again({ set: { n: 1 } })),
    becomes: { phase: 'Created', n: 1 },
    outcomes: { again: 1, moveTo: 1 },
    runs: 2,
  },
  wait: {
    matching: writes('wait'),
    handler: async (doc, step) => (doc.n ? step.moveTo('Created') : step.wait('tea', { for: '200ms', set: { n: 1 } })),
    becomes: { phase: 'Created', n: 1 },
    outcomes: { wait: 1, moveTo: 1 },
    runs: 2,
  },
  moveTo: {
    matching: writes('moveTo'),
    handler: done,
    becomes: { phase: 'Created', n: 1 },
    outcomes: { moveTo: 1 },
    runs: 1,
  },
  park: {
    matching: writes('park'),
    handler: async (_doc, step) => step.park('a person', { set: { n: 1 } }),
    becomes: { phase: 'Creating', n: 1 },
    outcomes: { park: 1 },
    runs: 1,
  },
  error: {
    matching: writes('error'),
    handler: async (_doc, step) => {
      if (step.attempt === 1) throw new Error('no luck')
      return step.moveTo('Created')
    },
    becomes: { phase: 'Created' },
    outcomes: { error: 1, moveTo: 1 },
    runs: 2,
  },
  checkpoint: {
    matching: writes('checkpoint'),
    handler: async (_doc, step) => {
      await step.checkpoint({ n: 1 })
      return step.moveTo('Created')
    },
    becomes: { phase: 'Created', n: 1 },
    outcomes: { checkpoint: 1, moveTo: 1 },
    runs: 1,
  },
  rule: {
    matching: writes('rule'),
    handler: done,
    given: [{ _id: 'a', phase: 'Created', state: 'Deleted' }],
    becomes: null,
    outcomes: {},
    runs: 0,
  },
  removal: {
    matching: isRemoval,
    handler: done,
    given: [{ _id: 'a', phase: 'Deleted', progress: { since: new Date(0) } }],
    becomes: null,
    outcomes: {},
    runs: 0,
  },
  renewal: {
    matching: isRenewal,
    handler: async (doc, step) => {
      await sleep(LOCK_TIMEOUT_MS * 1.2)
      return done(doc, step)
    },
    becomes: { phase: 'Created', n: 1 },
    outcomes: { moveTo: 1 },
    runs: 1,
  },
}

/** For batches a claim is another command than for a single document. */
const BATCH = Array.from({ length: 5 }, (_, n) => ({ _id: `b${n}`, phase: 'Creating' }))

describe('a connection that is cut', () => {
  const database = useDatabase()
  refuseUnhandledRejections()
  let proxy: TcpProxy
  let clients: MongoClient[]
  let replica: Replica

  beforeEach(async () => {
    proxy = await TcpProxy.start(database.uri)
    clients = []
  })
  afterEach(async () => {
    await replica.stop()
    await Promise.all(clients.map((client) => client.close()))
    await proxy.stop()
  })

  async function through(more: { maxPoolSize?: number } = {}): Promise<Db> {
    const client = new MongoClient(proxy.uri, { ...protocolClientOptions(LOCK_TIMEOUT_MS), ...more })
    clients.push(client)
    return (await client.connect()).db(database.db.databaseName)
  }

  /** A second replica would hide what the first leaves undone: there is one only. */
  async function startReplica(handler: CreatingHandler) {
    const ran: string[] = []
    const counted: CreatingHandler = async (doc, step) => {
      ran.push(doc._id)
      return handler(doc, step)
    }
    const observer = recordingObserver()
    const options = { renewalDb: await through({ maxPoolSize: 1 }), observer, graceMs: 100 }
    replica = replicaOf(await through(), thingWith(counted, lifecycle), options)
    await replica.prepare()
    return { ran, observer }
  }

  describe.each(['cutBefore', 'cutAfter'] as const)('%s', (cut) => {
    const when = cut === 'cutBefore' ? 'before the command arrives' : 'after it was executed and before the reply'

    test.each(Object.entries(CASES))(`%s: ${when}`, async (_name, one) => {
      const { ran, observer } = await startReplica(one.handler)
      const struck = proxy[cut](one.matching)
      await things(database.db).insertMany((one.given ?? NEW) as never[])
      await replica.start()
      await struck
      const struckAt = systemClock.monotonicMs()
      const end = await eventually(
        async () => {
          const document = await things(database.db).findOne({ _id: 'a' })
          if (one.becomes === null) expect(document).toBeNull()
          else expect(document).toMatchObject(one.becomes)
          expect(replica.status()).toMatchObject({ held: 0 })
          return document
        },
        { timeoutMs: 10_000 },
      )
      const tookMs = systemClock.monotonicMs() - struckAt
      if (one.becomes !== null) {
        const history: HistoryEntry[] = end?.['progress'].history
        const counts: Record<string, number> = {}
        for (const { outcome, count } of history) counts[outcome] = (counts[outcome] ?? 0) + count
        expect(counts).toEqual(one.outcomes)
      }
      expect(ran).toHaveLength(one.runs)
      expect(observer.losses).toEqual([])
      if (_name !== 'renewal') expect(tookMs).toBeLessThan(2_500)
    })

    test(`a claim of several: ${when}`, async () => {
      const { ran } = await startReplica(done)
      const struck = proxy[cut](isClaim)
      await things(database.db).insertMany(BATCH)
      await replica.start()
      await struck
      const struckAt = systemClock.monotonicMs()
      await eventually(async () => (await things(database.db).countDocuments({ phase: 'Created' })) === BATCH.length)
      expect(systemClock.monotonicMs() - struckAt).toBeLessThan(2_500)
      expect(ran.sort()).toEqual(BATCH.map(({ _id }) => _id))
    })
  })
})
