import { afterEach, describe, expect, test } from '@jest/globals'
import { InvalidLifecycle, lifecycleOf, MissingIndexes, type Replica } from '../../src/index.js'
import { orderIndexes } from '../../src/lock/index.js'
import { checkDatabase } from '../../src/operations/index.js'
import { modelRegistered } from '../../src/phases/model/registered.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, recordingLogger, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

describe('a lifecycle with an order of its claims', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()

  const settings = { priorityBy: 'priority', fairBy: 'tenant' }
  const insert = (n: number, prefix: string, fields: object) =>
    things(database.db).insertMany(
      Array.from({ length: n }, (_, i) => ({ _id: `${prefix}${i}`, phase: 'Creating', ...fields })),
    )

  /** One that notes what begins, in order. */
  async function prepared(more: object, work: () => Promise<void> = async () => undefined) {
    const begun: string[] = []
    const claims: number[] = []
    const logger = recordingLogger()
    const lifecycle = thingWith(async (doc, step) => {
      begun.push(doc._id)
      await work()
      return step.moveTo('Created')
    }, thingOf(more))
    const observer = { claimed: ({ claimed }: { claimed: number }) => void claims.push(claimed) }
    const replica = replicaOf(database.db, lifecycle, { logger, observer })
    replicas.push(replica)
    await replica.prepare()
    return { replica, begun, claims, logger }
  }

  test('an urgent document overtakes a backlog: it is in the next claim', async () => {
    const end = gate()
    const { replica, begun, claims } = await prepared({ priorityBy: 'priority', concurrency: 4 }, () => end.wait)
    await insert(1_500, 'low', { priority: 'low' })
    await replica.tick()
    // The claim that this tick has begun is over: it can't have seen what comes now.
    await eventually(async () => claims.length === 1)
    await insert(1, 'urgent', { priority: 'urgent' })
    end.open()
    await replica.runOnce()
    // How large the next claim is depends on how long the handlers took; never the whole backlog. A single place is drawn for.
    const next = claims.findIndex((size, i) => i > 0 && size > 1)
    const claimed = claims.slice(0, next + 1).reduce((sum, size) => sum + size, 0)
    expect(claimed).toBeLessThan(1_501)
    expect(begun.indexOf('urgent0')).toBeLessThan(claimed)
    expect(new Set(begun).size).toBe(1_501)
  })

  test("another tenant's documents wait for a few claims behind 5,000 of one", async () => {
    await insert(5_000, 'big', { tenant: 'big' })
    await insert(5, 'small', { tenant: 'small' })
    const { replica, begun, claims } = await prepared({ fairBy: 'tenant', concurrency: 8 })
    await replica.runOnce()
    const last = Math.max(...Array.from({ length: 5 }, (_, i) => begun.indexOf(`small${i}`)))
    const claimedBy = (claim: number) => claims.slice(0, claim).reduce((sum, claimed) => sum + claimed, 0)
    expect(claimedBy(4)).toBeGreaterThan(last)
    expect(begun).toHaveLength(5_005)
  })

  test('all are done once by two replicas', async () => {
    for (const tenant of ['a', 'b', 'c']) {
      for (const priority of ['low', 'normal', 'high', 'urgent'])
        await insert(60, `${tenant}${priority}`, { tenant, priority })
    }
    const [one, other] = [await prepared(settings), await prepared(settings)]
    await Promise.all([one.replica.runOnce(), other.replica.runOnce()])
    const begun = [...one.begun, ...other.begun]
    expect(begun).toHaveLength(720)
    expect(new Set(begun).size).toBe(720)
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(720)
  })

  test('a priority that is none is told once, and its document is claimed by its age', async () => {
    await insert(3, 'odd', { priority: 'hihg' })
    const { replica, begun, logger } = await prepared({ priorityBy: 'priority' })
    await replica.runOnce()
    expect(begun).toHaveLength(3)
    expect(logger.lines.filter(({ level }) => level === 'warn').map(({ message }) => message)).toEqual([
      expect.stringMatching(
        /^thing odd\d: its priority is none of urgent, high, normal, low; it stays and is claimed by its age/,
      ),
    ])
  })

  test('has its indexes created at the start, is refused where they may only be checked, and `check` mends them', async () => {
    const { replica } = await prepared(settings)
    await replica.stop()
    const keys = async () => (await things(database.db).indexes()).map(({ key }) => JSON.stringify(key))
    for (const index of orderIndexes(settings)) expect(await keys()).toContain(JSON.stringify(index))
    await things(database.db).dropIndex('tenant_1_phase_1_lockedAt_1_updatedAt_1')

    const checking = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created'), thingOf(settings)),
      {
        indexes: 'check',
      },
    )
    replicas.push(checking)
    const refused = await checking.prepare().catch((error: unknown) => error)
    expect(refused).toBeInstanceOf(MissingIndexes)
    expect((refused as Error).message).toContain('createIndex({"tenant":1,"phase":1,"lockedAt":1,"updatedAt":1})')

    const entry = await database.db.collection('phaselock.lifecycles').findOne({ _id: 'thing' as never })
    const { model } = modelRegistered(entry!)!
    expect(model.settings).toMatchObject(settings)
    const indexes = async (repair: boolean) =>
      (await checkDatabase({ db: database.db, models: [model], repair })).find(({ check }) => check === 'indexes')!
    expect(await indexes(false)).toMatchObject({
      said: '2 on each of 1 collections, and 2 more that lifecycles ask for',
      findings: [{ problem: 'it is missing', repair: 'possible' }],
    })
    expect(await indexes(true)).toMatchObject({ findings: [{ repair: 'done' }] })
    expect(await indexes(false)).toMatchObject({ findings: [] })
  })

  test('is off once it is no longer declared: the entry says so, and no such index is needed', async () => {
    await (await prepared(settings)).replica.stop()
    await prepared({})
    const entry = await database.db.collection('phaselock.lifecycles').findOne({ _id: 'thing' as never })
    expect(modelRegistered(entry!)!.model.settings).not.toHaveProperty('fairBy', 'tenant')
  })

  test.each([
    [
      { fairBy: 5 },
      "fairBy: expected the name of a top-level field, such as 'tenantId' (at most 100 characters), got 5",
    ],
    [
      { fairBy: 'a.b' },
      "fairBy: expected the name of a top-level field, such as 'tenantId' (at most 100 characters), got 'a.b'",
    ],
    [{ fairBy: '' }, 'fairBy: expected the name of a top-level field'],
    [{ priorityBy: 'lockedAt' }, 'priorityBy: expected a field of the owner, not one of those that Phaselock uses'],
    [{ priority: 'x' }, "unknown setting 'priority'"],
  ])('%j is refused', (wrong, message) => {
    const define = () => lifecycleOf<{ _id: string }>().define({ ...thingOf({}).model, ...base(), ...wrong } as never)
    expect(define).toThrow(InvalidLifecycle)
    expect(define).toThrow(message)
  })

  const base = () => ({ phases: { A: { next: ['B'] }, B: { rest: true } }, rules: [], settings: undefined })
})
