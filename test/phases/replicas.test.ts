import { describe, expect, test } from '@jest/globals'
import { Replica } from '../../src/index.js'
import { eventually, testDatabase, useDatabase } from '../support/database.js'
import { recordingLogger, recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

describe('several replicas on one collection', () => {
  const database = useDatabase()

  test('three of them, 600 documents, five steps each: done 600, every step once, nothing left leased', async () => {
    const effects = new Map<string, number>()
    const lifecycle = thingOf({ concurrency: 16 })
    const begun = new Set<string>()
    const allBegun = Promise.withResolvers<void>()
    const handlerOf = (name: string) =>
      thingWith(async (doc, step) => {
        // Nobody goes on before all three have something: each of them takes part.
        if (begun.add(name).size === 3) allBegun.resolve()
        await allBegun.promise
        const n = (doc.n ?? 0) + 1
        const effect = `${doc._id} ${n}`
        effects.set(effect, (effects.get(effect) ?? 0) + 1)
        return n < 5 ? step.again({ set: { n } }) : step.moveTo('Created', { set: { n } })
      }, lifecycle)
    await things(database.db).insertMany(Array.from({ length: 600 }, (_, i) => ({ _id: `a${i}`, phase: 'Creating' })))
    const observer = recordingObserver()
    const replicas = ['r1', 'r2', 'r3'].map((name) => replicaOf(database.db, handlerOf(name), { name, observer }))
    await Promise.all(replicas.map((replica) => replica.runOnce()))
    expect(await things(database.db).countDocuments({ phase: 'Created', n: 5, lockedBy: null })).toBe(600)
    expect(effects.size).toBe(3_000)
    expect([...effects.values()].filter((count) => count !== 1)).toEqual([])
    expect(observer.losses).toEqual([])
    const workers = await things(database.db).distinct('progress.endedBy')
    expect(new Set(workers.map((token) => String(token).split('~')[0])).size).toBe(3)
  })

  test("a crashed replica's documents are taken over after lockTimeout, and its late outcome changes nothing", async () => {
    const observer = recordingObserver()
    const resume = Promise.withResolvers<void>()
    const paused = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        await resume.promise
        return step.moveTo('Created', { set: { effects: ['late'] } })
      }),
      { observer },
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await paused.tick()
    await eventually(() => expect(paused.status().running).toBe(1))
    // As long as a pause past the lease: the document looks untouched for longer than lockTimeout.
    await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedAt: new Date(Date.now() - 31_000) } })
    const other = replicaOf(
      database.db,
      thingWith(async (_d, s) => s.moveTo('Created', { set: { effects: ['other'] } })),
    )
    await other.runOnce()
    resume.resolve()
    await paused.idle()
    expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created', effects: ['other'] })
    expect(observer.losses.map((loss) => loss.how)).toContain('refused')
    expect(observer.steps).toEqual([])
  })

  test('a state rule takes sleeping and parked documents, never a held one, which goes on when its step has ended', async () => {
    const hold = Promise.withResolvers<void>()
    const handler = thingWith(async (doc, step) => {
      if (doc._id === 'sleeps') return step.wait('x', { for: '1h' })
      if (doc._id === 'parked') return step.park('broken')
      await hold.promise
      return step.moveTo('Created')
    })
    const replica = replicaOf(database.db, handler)
    await things(database.db).insertMany(['sleeps', 'parked', 'held'].map((_id) => ({ _id, phase: 'Creating' })))
    await replica.tick()
    await eventually(() => expect(replica.status().held).toBe(1))
    await things(database.db).updateMany({}, { $set: { state: 'Deleted' } })
    const counts = await replica.tick()
    expect(counts.ruled).toBe(2)
    expect(await things(database.db).findOne({ _id: 'held' })).toMatchObject({ phase: 'Creating' })
    hold.resolve()
    await replica.idle()
    await replica.runOnce()
    expect(await things(database.db).countDocuments()).toBe(0)
  })

  test('unknown phases are left alone, with one warning that lists the known ones', async () => {
    const logger = recordingLogger()
    const replica = replicaOf(
      database.db,
      thingWith(async (_d, s) => s.moveTo('Created')),
      { logger },
    )
    await things(database.db).insertMany([1, 2].map((n) => ({ _id: `a${n}`, phase: 'Creatign', state: 'Deleted' })))
    await replica.runOnce()
    await replica.runOnce()
    expect(await things(database.db).findOne({ _id: 'a1' })).toEqual({ _id: 'a1', phase: 'Creatign', state: 'Deleted' })
    expect(logger.lines.map((line) => line.message)).toEqual([
      "thing: documents in the unknown phase 'Creatign' are left alone; known phases: Creating, Created, Deleting, Deleted",
    ])
  })

  test('the lockTimeout in the database is in force, and a replica whose setting differs says so', async () => {
    const logger = recordingLogger()
    const first = replicaOf(
      database.db,
      thingWith(async (_d, s) => s.moveTo('Created'), thingOf({ lockTimeout: '40s' })),
    )
    await first.prepare()
    const lifecycle = thingWith(async (_d, s) => s.moveTo('Created'), thingOf({ lockTimeout: '20s' }))
    const second = replicaOf(database.db, lifecycle, { logger })
    await second.prepare()
    expect(second.terms(lifecycle.model).lockTimeoutMs).toBe(40_000)
    expect(logger.lines[0]!.message).toMatch(
      /thing: lockTimeout 40 s is in force .* this replica's setting of 20 s is not used \(to change it: phaselock set-lock-timeout thing 20s\)/,
    )
    await database.db
      .collection<{ _id: string }>('phaselock.lifecycles')
      .updateOne({ _id: 'thing' }, { $set: { lockTimeout: 10_000 } })
    await second.tick()
    expect(second.terms(lifecycle.model).lockTimeoutMs).toBe(10_000)
  })

  test('a database that is away is survived and logged once, and work goes on when it is back', async () => {
    const own = await testDatabase()
    const logger = recordingLogger()
    const replica = replicaOf(
      own.db,
      thingWith(async (_d, s) => s.moveTo('Created')),
      { logger },
    )
    await replica.tick()
    await own.client.close()
    for (let i = 0; i < 5; i += 1) expect(await replica.tick()).toEqual({ ruled: 0, removed: 0, due: 0 })
    expect(logger.lines.filter((line) => line.level === 'error')).toHaveLength(1)
    expect(replica.status().notReady).toEqual(['the database does not answer'])
  })

  test('a started replica works by itself, resumes a short wait in between ticks, and stops', async () => {
    const replica = new Replica({
      db: database.db,
      lifecycles: [
        thingWith(async (doc, step) =>
          doc.n ? step.moveTo('Created') : step.wait('x', { for: '100ms', set: { n: 1 } }),
        ),
      ],
    })
    await replica.start()
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    const done = (await eventually(async () => {
      const doc = await things(database.db).findOne({ _id: 'a', phase: 'Created' })
      expect(doc).not.toBeNull()
      return doc
    })) as Record<string, any>
    const [wait, move] = done['progress'].history
    expect(move.at.getTime() - wait.at.getTime()).toBeGreaterThanOrEqual(100)
    await replica.stop()
  })
})
