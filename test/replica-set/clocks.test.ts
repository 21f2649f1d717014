import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { fakeTimeLibrary } from '../../chaos/replica-set/fake-clock.ts'
import { lifecycleOf, Replica, type ReplicaObserver } from '../../src/index.js'
import { sleep, systemClock } from '../../src/time/index.js'
import { eventually } from '../support/database.js'
import { gate } from '../support/thing.js'
import { describeWithMongod } from './mongod.js'
import { useReplicaSet } from './support.js'

jest.setTimeout(300_000)

const hasLibrary = (await fakeTimeLibrary()) !== undefined
if (!hasLibrary) process.stderr.write('skipped, no clocks for members: install the package libfaketime\n')

const STEPS = 4
const LOCK_TIMEOUT_MS = 6_000
const BETWEEN_ELECTIONS_MS = 4_000

interface Doc {
  _id: string
  /** How long each of its steps takes. */
  stepMs: number
}
/** A step that ran, by this process's monotonic clock. */
interface Ran {
  readonly id: string
  readonly step: number
  readonly fence: number
  readonly beginMs: number
  endMs: number
  /** Whether its holder still had the lease at the end. */
  held: boolean
}

const lifecycle = lifecycleOf<Doc>().define({
  name: 'thing',
  collection: 'Thing',
  phases: { Working: { next: ['Done'] }, Done: { rest: true } },
  lockTimeout: `${LOCK_TIMEOUT_MS}ms`,
})

const withClocks = hasLibrary ? describeWithMongod : describe.skip
withClocks.each([
  ['5 s', [0, 5, -5]],
  ['10 min', [0, 600, -600]],
])('elections among members whose clocks are %s apart', (_, aheadSeconds) => {
  const on = useReplicaSet({ aheadSeconds })
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })

  test('take no lease from a live holder, repeat no recorded step, and leave nothing undone', async () => {
    const ran: Ran[] = []
    const handlers = lifecycle.handle({
      Working: async (doc, step) => {
        const number = Number(step.name ?? 0)
        const own: Ran = {
          ...{ id: doc._id, step: number, fence: step.fence, beginMs: systemClock.monotonicMs() },
          ...{ endMs: Number.POSITIVE_INFINITY, held: false },
        }
        ran.push(own)
        await sleep(doc.stepMs)
        own.held = step.leaseLeftMs() > 0
        own.endMs = systemClock.monotonicMs()
        return number + 1 < STEPS ? step.again({ step: String(number + 1) }) : step.moveTo('Done')
      },
    })
    const { db } = on.database
    const stepsNoticed: unknown[] = []
    const observer: ReplicaObserver = { clockStepped: (step) => void stepsNoticed.push(step) }
    for (const name of ['one', 'other']) {
      const replica = new Replica({ db, lifecycles: [handlers], name, clockHold: '10s', grace: '1s', observer })
      replicas.push(replica)
      await replica.start()
    }
    const owner = db.collection<Doc & { phase: string }>('Thing', { writeConcern: { w: 'majority' } })
    let count = 0
    for (const elected of [1, 2, 1, 0]) {
      // Steps that last longer than the lock timeout live on renewals, by whatever clock there is then.
      for (const stepMs of [50, 300, 1_000, LOCK_TIMEOUT_MS + 2_000]) {
        count += 1
        await owner.insertOne({ _id: String(count), stepMs, phase: 'Working' })
      }
      await sleep(BETWEEN_ELECTIONS_MS)
      await on.set.elect(elected)
    }
    await eventually(async () => expect(await owner.countDocuments({ phase: 'Done' })).toBe(count), {
      timeoutMs: 150_000,
      everyMs: 500,
    })

    expect(stepsNoticed.length).toBeGreaterThan(0)
    const overlapping = ran.filter(
      (one) =>
        one.held && ran.some((other) => other.id === one.id && other.fence > one.fence && other.beginMs < one.endMs),
    )
    expect(overlapping).toEqual([])
    const repeated = ran.filter((one) =>
      ran.some((other) => other.id === one.id && other.step > one.step && other.beginMs < one.beginMs),
    )
    expect(repeated).toEqual([])
    const fences = Map.groupBy(ran, ({ id }) => id)
    for (const [id, steps] of fences) {
      const inOrder = steps.map(({ fence }) => fence)
      expect({ id, fences: inOrder }).toEqual({ id, fences: inOrder.toSorted((a, b) => a - b) })
    }
  })
})

const LONG_LEASE_MS = 60_000

withClocks.each([
  ['the default', {}, 1],
  ["'0s'", { clockHold: '0s' }, 2],
] as const)(
  'an election of a member that is 10 min ahead, between two renewals, with clockHold: %s',
  (_, hold, times) => {
    const on = useReplicaSet({ aheadSeconds: [0, 600, 600] })
    const replicas: Replica[] = []
    afterEach(async () => {
      await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
    })

    test(`lets a step whose holder lives begin ${times === 1 ? 'once' : 'twice'}`, async () => {
      await on.set.elect(0)
      const { wait, open } = gate()
      let begun = 0
      const slow = lifecycleOf<Doc>().define({
        name: 'slow',
        collection: 'Slow',
        phases: { Working: { next: ['Done'] }, Done: { rest: true } },
        lockTimeout: `${LONG_LEASE_MS}ms`, // renewed every 20 s
      })
      const handlers = slow.handle({
        Working: async (_doc, step) => {
          begun += 1
          await wait
          return step.moveTo('Done')
        },
      })
      const { db } = on.database
      for (const name of ['one', 'other']) {
        const replica = new Replica({ db, lifecycles: [handlers], name, grace: '1s', ...hold })
        replicas.push(replica)
        await replica.start()
      }
      const owner = db.collection<Doc & { phase: string; lockedAt?: Date }>('Slow', { writeConcern: { w: 'majority' } })
      await owner.insertOne({ _id: 'a', stepMs: 0, phase: 'Working' })
      await eventually(() => begun === 1)
      const lockedAt = (await owner.findOne({ _id: 'a' }))!.lockedAt!
      await on.set.elect(1)
      const isByTheNewClock = async () => {
        const found = await owner.findOne({ _id: 'a' })
        return found!.lockedAt!.getTime() - lockedAt.getTime() > LONG_LEASE_MS
      }
      // By the next claim, or by the holder's renewal.
      await eventually(isByTheNewClock, { timeoutMs: 60_000 })
      if (times === 2) await eventually(() => begun === times)
      open()
      await eventually(async () => expect(await owner.findOne({ _id: 'a' })).toMatchObject({ phase: 'Done' }), {
        timeoutMs: 60_000,
      })
      expect(begun).toBe(times)
    })
  },
)
