import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { Db, Document, MongoClient } from 'mongodb'
import { protocolClient, protocolClientOptions } from '../../src/database/index.js'
import type { Replica } from '../../src/index.js'
import type { HistoryEntry } from '../../src/lock/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { type CreatingHandler, recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'
import { TraceRecorder } from '../support/traces/recorder.js'
import { refuseUnhandledRejections } from './unhandled.js'

const LOCK_TIMEOUT_MS = 30_000
/** Less than a lease, much more than a busy machine takes: the replica knows what became of its command before anything expires. */
const SOON_MS = 20_000
const lifecycle = thingOf({ lockTimeout: `${LOCK_TIMEOUT_MS}ms` })
/** So that a renewal comes soon. */
const shortLeased = thingOf({ lockTimeout: '6s' })

type Command = { name: string; body: Document }

/** Whether a command writes this outcome: its history entry says so. */
const writes = (outcome: string) => (command: Command) =>
  command.name === 'update' && JSON.stringify(command.body).includes(`"outcome":{"$literal":"${outcome}"}`)
const isClaim = ({ name, body }: Command) =>
  (name === 'update' || name === 'findAndModify') && /"lockedBy":.*"claims":\{"\$add"/.test(JSON.stringify(body))
const isRenewal = ({ name, body }: Command) =>
  name === 'update' && /^\[\{"\$set":\{"lockedAt":\{"\$max"/.test(JSON.stringify(body['updates']?.[0]?.u))
const isRemoval = ({ name, body }: Command) => name === 'delete' && body['delete'] === 'Thing'

interface Case {
  readonly matching: (command: Command) => boolean
  readonly handler: CreatingHandler
  /** Default: the one with a lease of 30 s. */
  readonly lifecycle?: typeof lifecycle
  /** Documents there before the replica starts. */
  readonly given?: Document[]
  /** How the document ends, null: removed. */
  readonly becomes: Document | null
  /** How often each outcome must stand in its history. */
  readonly outcomes: Record<string, number>
  /** How often the handler runs. */
  readonly runs: number
}

const database = useDatabase()
/** Resolves when the command of the case has been cut. */
let cutRenewal: Promise<unknown> = Promise.resolve()

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
    lifecycle: shortLeased,
    handler: async (doc, step) => {
      const lockedAt = async () => (await things(database.db).findOne({ _id: 'a' }))?.['lockedAt'].getTime()
      await cutRenewal
      const before = await lockedAt()
      await eventually(async () => (await lockedAt()) > before)
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
  refuseUnhandledRejections()
  let proxy: TcpProxy
  let clients: MongoClient[]
  let replica: Replica
  let traces: TraceRecorder

  beforeEach(async () => {
    proxy = await TcpProxy.start(database.uri)
    traces = TraceRecorder.start(proxy)
    clients = []
  })
  afterEach(async () => {
    await replica.stop()
    traces.stop()
    expect(await traces.contradictions(things(database.db))).toEqual([])
    await Promise.all(clients.map((client) => client.close()))
    await proxy.stop()
  })

  async function through(more: { maxPoolSize?: number } = {}): Promise<Db> {
    const client = protocolClient(proxy.uri, { ...protocolClientOptions(LOCK_TIMEOUT_MS), ...more })
    clients.push(client)
    return (await client.connect()).db(database.db.databaseName)
  }

  /** A second replica would hide what the first leaves undone: there is one only. */
  async function startReplica(handler: CreatingHandler, of = lifecycle) {
    const ran: string[] = []
    const counted: CreatingHandler = async (doc, step) => {
      ran.push(doc._id)
      return handler(doc, step)
    }
    const observer = recordingObserver()
    const options = { renewalDb: await through({ maxPoolSize: 1 }), observer, grace: '100ms' } as const
    replica = replicaOf(await through(), thingWith(counted, of), options)
    await replica.prepare()
    return { ran, observer }
  }

  describe.each(['cutBefore', 'cutAfter'] as const)('%s', (cut) => {
    const when = cut === 'cutBefore' ? 'before the command arrives' : 'after it was executed and before the reply'

    test.each(Object.entries(CASES))(`%s: ${when}`, async (_name, one) => {
      const { ran, observer } = await startReplica(one.handler, one.lifecycle)
      const struck = proxy[cut](one.matching)
      await things(database.db).insertMany((one.given ?? NEW) as never[])
      cutRenewal = struck
      await replica.start()
      await struck
      const end = await eventually(
        async () => {
          const document = await things(database.db).findOne({ _id: 'a' })
          if (one.becomes === null) expect(document).toBeNull()
          else expect(document).toMatchObject(one.becomes)
          expect(replica.status()).toMatchObject({ held: 0 })
          return document
        },
        { timeoutMs: SOON_MS },
      )
      if (one.becomes !== null) {
        const history: HistoryEntry[] = end?.['progress'].history
        const counts: Record<string, number> = {}
        for (const { outcome, count } of history) counts[outcome] = (counts[outcome] ?? 0) + count
        expect(counts).toEqual(one.outcomes)
      }
      expect(ran).toHaveLength(one.runs)
      expect(observer.losses).toEqual([])
    })

    test(`a claim of several: ${when}`, async () => {
      const { ran } = await startReplica(done)
      const struck = proxy[cut](isClaim)
      await things(database.db).insertMany(BATCH)
      await replica.start()
      await struck
      const created = async () => (await things(database.db).countDocuments({ phase: 'Created' })) === BATCH.length
      await eventually(created, { timeoutMs: SOON_MS })
      expect(ran.sort()).toEqual(BATCH.map(({ _id }) => _id))
    })
  })
})
