import { afterEach, describe, expect, test } from '@jest/globals'
import type { Replica, RunnableLifecycle } from '../../src/index.js'
import { lifecycleOf } from '../../src/index.js'
import { idKey, LIFECYCLES_COLLECTION } from '../../src/lock/index.js'
import { WorkSplit } from '../../src/lock/select/work-split.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, replicaOf, ShiftedClock, type Thing, thingOf, thingSpec, things, thingWith } from '../support/thing.js'

/** The bound of docs/lock-protocol.md, point 2. */
const BOUND_MS = 5_000
/** Sooner than another's share is anybody's. */
const AT_ONCE_MS = 1_250
const STEP_MS = 250
const CONCURRENCY = 2

describe('a replica whose own share never leaves it idle', () => {
  const database = useDatabase()
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })

  /** One that ticks when it is told to, and counts as there for the others. */
  async function present(lifecycle: RunnableLifecycle, clock = new ShiftedClock()) {
    let claims = 0
    const observer = {
      claimed: () => {
        claims += 1
      },
    }
    const options = { clock, observer, doorbell: 'off', grace: '0s' } as const
    const replica = replicaOf(database.db, lifecycle, options)
    replicas.push(replica)
    await replica.prepare()
    replica.wakeBetweenTicks()
    await replica.tick()
    return { replica, clock, claims: () => claims }
  }

  const goesRound = (ran: Set<string>, lifecycle = thingOf({ concurrency: CONCURRENCY })) =>
    thingWith(async (doc, step) => {
      ran.add(doc._id)
      await sleep(10) // so that the closed set is due again sooner than it has been gone through
      return doc._id.startsWith('b') ? step.moveTo('Created') : step.wait('its turn again', { for: '100ms' })
    }, lifecycle)

  /** A's closed set is due all the time, and ten documents fall to the other one: how long until all of them have run. */
  async function msUntilAllRan(
    ran: Set<string>,
    a: Awaited<ReturnType<typeof present>>,
    other: Replica,
  ): Promise<number> {
    await a.replica.tick()
    const share = new WorkSplit(
      () => ({ self: a.replica.identity, replicas: [a.replica.identity, other.identity] }),
      a.clock,
    )
    const some = (count: number, kind: string, isOwn: boolean) =>
      Array.from({ length: 40 * count }, (_, i) => `${kind}${i}`)
        .filter((id) => share.isOwn(idKey(id)) === isOwn)
        .slice(0, count)
    const closed = some(100, 'a', true)
    const left = some(10, 'b', false)
    await things(database.db).insertMany(closed.map((_id) => ({ _id, phase: 'Creating' })))
    await a.replica.tick()
    // It may also have run what the other one gave back as its places hang.
    await eventually(() => closed.every((id) => ran.has(id)))
    await things(database.db).insertMany(left.map((_id) => ({ _id, phase: 'Creating' })))
    let ms = 0
    for (; ms < 4 * BOUND_MS && !left.every((id) => ran.has(id)); ms += STEP_MS) {
      a.clock.advance(STEP_MS)
      const before = a.claims()
      await a.replica.tick()
      await eventually(() => a.claims() > before + 1)
    }
    return ms
  }

  /** Two that share; the places of the second one hang. */
  async function besideOneThatHangs(ran: Set<string>) {
    const a = await present(goesRound(ran))
    const hangs = gate()
    const b = await present(
      thingWith(
        async (_doc, step) => {
          await hangs.wait
          return step.moveTo('Created')
        },
        thingOf({ concurrency: CONCURRENCY }),
      ),
    )
    await things(database.db).insertMany(Array.from({ length: 3 }, (_, i) => ({ _id: `hung${i}`, phase: 'Creating' })))
    await b.replica.tick()
    await eventually(() => b.replica.status().held === 3)
    return { a, b, hangs }
  }

  /** One whose version lacks the phase. */
  const presentWithoutPhase = () => {
    const older = lifecycleOf<Thing>().define({
      ...thingSpec,
      phases: { Created: { rest: true }, Deleting: { next: ['Deleted'] }, Deleted: { final: true } },
      rules: [{ when: 'Deleted', from: ['Created'], moveTo: 'Deleting' }],
    })
    return present(older.handle({ Deleting: async (_doc, step) => step.moveTo('Deleted') }))
  }

  const reported = async ({ replica }: { replica: Replica }) => {
    const entry = await database.db.collection<{ _id: string }>(LIFECYCLES_COLLECTION).findOne({ _id: 'thing' })
    const reports = (entry as { replicas?: { name: string; phases?: string[] }[] } | null)?.replicas
    return reports?.find(({ name }) => name === replica.identity)?.phases
  }

  /** As one of an older Phaselock reports itself. */
  const forgetPhases = () =>
    database.db
      .collection<{ _id: string }>(LIFECYCLES_COLLECTION)
      .updateOne({ _id: 'thing' }, { $unset: { 'replicas.$[].phases': 1 } })

  test('runs what falls to one that is there with all its places hanging', async () => {
    const ran = new Set<string>()
    const { a, b, hangs } = await besideOneThatHangs(ran)
    expect(await msUntilAllRan(ran, a, b.replica)).toBeLessThanOrEqual(BOUND_MS)
    hangs.open()
  })

  test('at once, when that one has said so; it has its share again when it says that they no longer hang', async () => {
    const ran = new Set<string>()
    const { a, b, hangs } = await besideOneThatHangs(ran)
    expect(await reported(b)).toEqual(['Creating', 'Deleting'])
    b.clock.advance(10_000)
    await b.replica.tick()
    expect(await reported(b)).toEqual([])
    expect(await msUntilAllRan(ran, a, b.replica)).toBeLessThanOrEqual(AT_ONCE_MS)
    hangs.open()
    await b.replica.idle()
    b.clock.advance(10_000)
    await b.replica.tick()
    expect(await reported(b)).toEqual(['Creating', 'Deleting'])
  })

  test('runs at once what would fall to one of an older version, which is idle and has no such phase', async () => {
    const ran = new Set<string>()
    const a = await present(goesRound(ran))
    const b = await presentWithoutPhase()
    expect(await reported(b)).toEqual(['Deleting'])
    expect(await msUntilAllRan(ran, a, b.replica)).toBeLessThanOrEqual(AT_ONCE_MS)
  })

  test('and within the bound if that one is of a Phaselock that does not say which phases it has', async () => {
    const ran = new Set<string>()
    const a = await present(goesRound(ran))
    const b = await presentWithoutPhase()
    await forgetPhases()
    expect(await msUntilAllRan(ran, a, b.replica)).toBeLessThanOrEqual(BOUND_MS)
  })
})
