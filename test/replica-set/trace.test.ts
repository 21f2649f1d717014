import { afterEach, expect, jest, test } from '@jest/globals'
import type { Document, MongoClient, MongoServerError } from 'mongodb'
import { protocolClient, protocolClientOptions } from '../../src/database/index.js'
import { lifecycleOf, Replica } from '../../src/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually } from '../support/database.js'
import { type Call, contradictionsOfOplog, type Sent } from '../support/traces/check-oplog.js'
import { type Change, oplogOf } from '../support/traces/oplog.js'
import { TraceRecorder } from '../support/traces/recorder.js'
import type { Trace } from '../support/traces/trace.js'
import { CommandBook } from './command-book.js'
import { describeWithMongod } from './mongod.js'
import { useReplicaSet } from './support.js'

jest.setTimeout(400_000)

const LOCK_TIMEOUT_MS = 6_000
/** Of the step of a document that its holder loses, the first time. */
const LATE_MS = LOCK_TIMEOUT_MS + 1_500
const RENEWALS = 'renewals'
const BURST = 25
const ROUND_MS = 2_000
const DUPLICATE_KEY = 11000
/** Every so many are deleted by their owner. */
const DELETED = 5
/** How often the primary steps down while updates of several documents are under way. */
const STEP_DOWNS = 3
const NONE_FOR_MS = 3_000
/** An update of as many is still under way when a member has been told to stop at the next document. */
const LARGE = 40

const COMMANDS = ['update', 'findAndModify', 'find', 'aggregate', 'insert', 'getMore']
const LABELS = { errorLabels: ['RetryableWriteError'] }

/** What a member says instead of doing it; of a write concern's error: after it has done it. */
const INDUCED: readonly (readonly [name: string, data: Document])[] = [
  ['NotWritablePrimary', { failCommands: COMMANDS, errorCode: 10107 }],
  ['NotWritablePrimary, retryable', { failCommands: COMMANDS, errorCode: 10107, ...LABELS }],
  ['InterruptedDueToReplStateChange', { failCommands: COMMANDS, errorCode: 11602 }],
  ['PrimarySteppedDown, retryable', { failCommands: COMMANDS, errorCode: 189, ...LABELS }],
  ['the connection is closed', { failCommands: COMMANDS, closeConnection: true }],
  [
    'WriteConcernFailed',
    { failCommands: ['update', 'findAndModify', 'insert'], writeConcernError: { code: 64, errmsg: 'timed out' } },
  ],
  [
    'InterruptedDueToReplStateChange, while it waited for a majority',
    { failCommands: ['update', 'findAndModify', 'insert'], writeConcernError: { code: 11602, errmsg: 'interrupted' } },
  ],
]

/** Of a tenant's documents so many may be held at once. */
const SLOTS = { field: 'tenant', each: 30 }
const TENANTS = 6
/** Every so many ask something. */
const ASKS = 4

interface Doc {
  _id: string
  tenant: string
  state?: 'Deleted'
  at?: number
  threw?: boolean
}

const lifecycle = lifecycleOf<Doc>().define({
  name: 'thing',
  collection: 'Thing',
  phases: {
    Creating: { next: ['Created'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Deleted', from: ['Creating', 'Created'], moveTo: 'Deleting' }],
  concurrency: 4 * LARGE,
  lockTimeout: `${LOCK_TIMEOUT_MS}ms`,
  ...{ limitBy: 'tenant', each: SLOTS.each, fairBy: 'tenant', callbacks: ['onMoved'] },
})

const numberOf = (id: string) => Number(id.slice(1))
const tenantOf = (id: string) => `tenant ${numberOf(id) % TENANTS}`
const asks = (id: string) => id.startsWith('d') && numberOf(id) % ASKS === 1
const endOf = (id: string) => (!id.startsWith('c') && numberOf(id) % DELETED === 0 ? 'Deleted' : 'Created')

/** Each kind of end, a checkpoint, a question and what a callback is told. */
const handled = (late: Set<string>, calls: Call[]) =>
  lifecycle.handle(
    {
      Creating: async (doc, step) => {
        if (doc._id.startsWith('s') && !late.has(doc._id)) {
          late.add(doc._id)
          await sleep(LATE_MS)
        }
        if (step.name === undefined) return step.again({ step: 'noted', set: { at: 1 } })
        if (step.name === 'noted') {
          if (asks(doc._id) && !step.answer) return step.ask({ question: 'Go on?', options: ['yes'] })
          await step.checkpoint({ at: 2 })
          return step.again({ step: 'waits' })
        }
        if (step.name === 'waits')
          return step.waitedMs > 200 ? step.again({ step: 'throws' }) : step.wait('a moment', { for: '100ms' })
        if (numberOf(doc._id) % 7 === 0 && step.attempt === 1) throw new Error('once')
        return step.moveTo('Created')
      },
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    },
    { onMoved: ({ id, seq, to }) => void calls.push({ id, seq, to }) },
  )

describeWithMongod('verdicts, claims and fences beside the oplog', () => {
  const TEST_COMMANDS = ['enableTestCommands=1', 'internalQueryExecYieldIterations=1']
  const on = useReplicaSet({ args: TEST_COMMANDS.flatMap((one) => ['--setParameter', one]) })
  const closing: (() => unknown)[] = []
  afterEach(async () => {
    await on.set.atEach({ configureFailPoint: 'failCommand', mode: 'off' })
    for (const close of closing.splice(0).reverse()) await close()
  })

  test('what was told is what was written, under each error that an election brings; and a wrong verdict is found', async () => {
    const recorder = TraceRecorder.start()
    closing.push(() => recorder.stop())
    const book = new CommandBook()
    const late = new Set<string>()
    const calls: Call[] = []
    const clientOf = async (more = {}): Promise<MongoClient> => {
      const options = { ...protocolClientOptions(LOCK_TIMEOUT_MS), ...more, monitorCommands: true }
      const client = protocolClient(on.database.uri, options)
      book.listenTo(client)
      closing.push(() => client.close())
      return client.connect()
    }
    const name = on.database.db.databaseName
    for (const replica of ['one', 'other']) {
      const [client, renewals] = [await clientOf(), await clientOf({ maxPoolSize: 1, appName: RENEWALS })]
      const options = {
        db: client.db(name),
        renewalDb: renewals.db(name),
        lifecycles: [handled(late, calls)],
        name: replica,
      }
      const started = new Replica({ ...options, grace: '2s', logger: SILENT })
      closing.push(() => started.stop())
      await started.start()
    }

    const owner = handled(late, calls).attach((await clientOf()).db(name))
    const inserted: string[] = []
    const stated: { id: string; state: string }[] = []
    const answered: { id: string; question: string }[] = []
    let count = 0
    const answer = async () => {
      for (const { _id, id: question } of await owner.questions()) {
        const { kind } = await owner.answer(_id, { option: 'yes', by: 'owner', question })
        // Already: by the call before, whose answer was lost.
        if (kind === 'answered' || kind === 'alreadyAnswered') answered.push({ id: _id, question })
      }
    }
    const answering = new AbortController()
    const answers = (async () => {
      while (!answering.signal.aborted) {
        await answer().catch(() => undefined)
        await sleep(200)
      }
    })()
    closing.push(async () => {
      answering.abort()
      await answers
    })
    const load = async (prefix = 'd') => {
      const ids = Array.from({ length: BURST }, () => `${prefix}${count++}`)
      await Promise.all(
        ids.map(async (_id) => {
          await insist(
            () => owner.insert({ _id, tenant: tenantOf(_id) }),
            () => inserted.push(_id),
          )
          if (endOf(_id) === 'Deleted') {
            await insist(
              () => owner.setState(_id, 'Deleted'),
              () => stated.push({ id: _id, state: 'Deleted' }),
            )
          }
        }),
      )
    }
    const during = async (fault: () => Promise<void>) => {
      const over = sleep(ROUND_MS)
      await Promise.all([fault(), load(), load()])
      await over
    }
    for (const [, data] of INDUCED) {
      const mode = { activationProbability: 0.3 }
      await during(() =>
        on.set.atEach({ configureFailPoint: 'failCommand', mode, data: { ...data, appName: 'phaselock' } }),
      )
      await on.set.atEach({ configureFailPoint: 'failCommand', mode: 'off' })
    }
    const toldLate = () =>
      recorder.trace().verdicts.filter(({ verdict }) => verdict === 'lost' || verdict === 'movedOn')
    // Nothing is renewed while these steps take longer than their leases: their outcomes come late.
    const namespace = `${name}.Thing`
    const data = { failCommands: ['update'], errorCode: 11602, appName: RENEWALS, namespace }
    await on.set.atEach({ configureFailPoint: 'failCommand', mode: 'alwaysOn', data })
    await load('s')
    await eventually(() => expect(toldLate()).not.toEqual([]), { timeoutMs: 60_000 })
    await on.set.atEach({ configureFailPoint: 'failCommand', mode: 'off' })
    const things = on.database.db.collection<Doc & { phase: string }>('Thing')
    const oplog = () => oplogOf(on.database.client, namespace)
    for (let n = 0; n < STEP_DOWNS; n += 1) {
      const hang = {
        configureFailPoint: 'setYieldAllLocksHang',
        data: { namespace, checkForInterruptAfterHang: true },
      }
      const caught = new Promise<unknown>((resolve) => {
        book.onUpdateOf = (documents) => {
          if (documents < LARGE) return
          book.onUpdateOf = undefined
          resolve(on.database.client.db('admin').command({ ...hang, mode: 'alwaysOn' }))
        }
      })
      const ids = Array.from({ length: 4 * LARGE }, () => `c${count++}`)
      await owner.insertMany(ids.map((_id) => ({ _id, tenant: tenantOf(_id) })))
      inserted.push(...ids)
      await Promise.race([caught, sleep(NONE_FOR_MS)])
      book.onUpdateOf = undefined
      await on.set.stepDown()
      await on.set.atEach({ ...hang, mode: 'off' })
      await eventually(() => on.set.isWhole(), { timeoutMs: 60_000 })
    }
    await eventually(
      async () => {
        const undone = (await things.find().toArray()).filter(({ _id, phase }) => phase !== endOf(_id))
        expect(undone.map(({ _id, phase }) => ({ _id, phase }))).toEqual([])
      },
      { timeoutMs: 90_000, everyMs: 300 },
    )
    expect(await things.countDocuments()).toBe(count)
    answering.abort()
    await answers
    const isUntold = { 'progress.outbox.next': { $exists: true } }
    await eventually(async () => expect(await things.countDocuments(isUntold)).toBe(0), { timeoutMs: 60_000 })

    const changes = await oplog()
    const trace = recorder.trace()
    const sent = { tokens: book.tokens, inserted, stated, answered, told: calls }
    const check = (its: Trace, oplog: readonly Change[] = changes, said: Partial<Sent> = {}, slots = SLOTS) => [
      ...contradictionsOfOplog(its, oplog, { ...sent, ...said }, LOCK_TIMEOUT_MS, slots),
    ]
    const told = countBy(trace.verdicts, ({ verdict }) => verdict)
    const { sent: commands, errors } = book
    const counts = {
      documents: count,
      answered: answered.length,
      calls: calls.length,
      writes: changes.length,
      leases: trace.leases.length,
      commands,
    }
    process.stderr.write(`${JSON.stringify({ ...counts, errors, told, midway: book.interruptedMidway(changes) })}\n`)
    for (const code of ['10107', '11602', '189', '64', 'MongoNetworkError']) expect(errors[code]).toBeGreaterThan(0)
    expect(check(trace)).toEqual([])
    expect(await recorder.contradictions(things)).toEqual([])

    for (const [wrong, found] of doctored(trace, changes))
      expect(check(wrong.trace, wrong.changes)).toContainEqual(found)
    for (const [said, found] of doctoredCalls(sent)) expect(check(trace, changes, said)).toContain(found)
    expect(check(trace, changes, {}, { ...SLOTS, each: 1 }).join()).toMatch(/one of 2 that are held with tenant /)
  })
})

interface Told {
  readonly trace: Trace
  readonly changes: readonly Change[]
}

/** The same with one thing wrong in it, and what must be said then. */
function* doctored(trace: Trace, changes: readonly Change[]): Generator<readonly [wrong: Told, said: string]> {
  const right = trace.verdicts.findLast(({ verdict, end }) => verdict === 'recorded' && end === 'moveTo')!
  const { id, token, claim } = right
  const name = `moveTo of ${id} under ${token}`
  const others = trace.verdicts.filter((one) => one !== right)
  const at = changes.findIndex((one) => one.id === id && one.after?.['progress']?.endedBy === token)
  const { before, after, wall } = changes[at]!
  const isUnderIt = (document: Change['before']) => document?.['lockedBy']?.startsWith(`${claim}.`) ?? false
  // Nobody need have let go of the document before: a claim may take it over from a holder whose lease ran out in an election.
  const claimedAt = changes.findLastIndex(
    (one, i) => i < at && one.id === id && isUnderIt(one.after) && !isUnderIt(one.before),
  )
  const verdict = (its: Trace['verdicts'][number]['verdict']) => ({
    ...trace,
    verdicts: [...others, { ...right, verdict: its }],
  })
  const write = (change: Change, i = at) => changes.with(i, change)

  yield [{ trace: verdict('lost'), changes }, `${name}: told as lost, the oplog has it`]
  yield [{ trace: verdict('rejected'), changes }, `${name}: told as rejected, the oplog has it`]
  yield [
    { trace: { ...trace, verdicts: others }, changes },
    `${id} ${token}: its outcome is in the oplog, nobody was told`,
  ]
  yield [{ trace, changes: changes.toSpliced(at, 1) }, `${name}: told as recorded, the oplog has it 0 times`]
  yield [
    { trace, changes: changes.toSpliced(at, 0, changes[at]!) },
    `${name}: told as recorded, the oplog has it 2 times`,
  ]
  yield [{ trace: { ...trace, unanswered: [right] }, changes }, `${name}: without a verdict`]
  yield [
    { trace, changes: changes.toSpliced(claimedAt, 1) },
    `${id} ${claim}: believed to be held, the oplog has 0 claims of it`,
  ]
  yield [
    { trace: { ...trace, leases: trace.leases.filter((one) => one.id !== id || one.claim !== claim) }, changes },
    `${id} ${token}: written under a lease that nobody believed in`,
  ]
  const next = { ...before, lockedBy: 'next~1#1.1' }
  yield [
    { trace, changes: write({ id, before: next, after: { ...after, lockedBy: next.lockedBy }, wall }) },
    `${id}: an outcome under ${token} while ${next.lockedBy} had it`,
  ]
  const heldMs = wall.getTime() - before!['lockedAt'].getTime()
  yield [
    { trace, changes: write({ id, before, after: { ...before, lockedBy: next.lockedBy }, wall }) },
    `${id}: taken from ${token} by ${next.lockedBy} after ${heldMs} ms`,
  ]
  yield [
    { trace, changes: write({ id, before, after: { ...after, fence: before!['fence'] - 1 }, wall }) },
    `${id}: fence ${before!['fence'] - 1} after ${before!['fence']} under ${token}`,
  ]
  yield [
    { trace, changes: changes.filter((one) => one.id !== id || one.before) },
    `${id}: told as inserted, the oplog has it 0 times`,
  ]
}

/** The same of what owners and callbacks were told. */
function* doctoredCalls({ told, answered }: Sent): Generator<readonly [wrong: Partial<Sent>, said: string]> {
  const { id, seq, to } = told.find((one) => one.seq === 1)!
  const others = told.filter((one) => one.id !== id || one.seq !== seq)
  yield [{ told: others }, `${id} ${seq}: of ${to} in the oplog nobody was told`]
  yield [{ told: [...told, { id, seq, to: 'Elsewhere' }] }, `${id} ${seq}: told of Elsewhere, the oplog has ${to}`]
  yield [{ told: [{ id, seq: 2, to }, ...told] }, `${id} 2: told before 1`]
  const asked = answered[0]!.id
  yield [
    { answered: [{ id: asked, question: 'another' }] },
    `${asked}: told that another is answered, the oplog has that 0 times`,
  ]
}

/** As an owner does who gets no answer: again, until it is done. */
async function insist(call: () => Promise<unknown>, done: () => void): Promise<void> {
  await eventually(
    () => call().catch((error: MongoServerError) => error.code === DUPLICATE_KEY || Promise.reject(error)),
    { timeoutMs: 60_000 },
  )
  done()
}

function countBy<T>(all: readonly T[], key: (one: T) => string): Record<string, number> {
  return Object.fromEntries([...Map.groupBy(all, key)].map(([name, those]) => [name, those.length]))
}

const SILENT = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined }
