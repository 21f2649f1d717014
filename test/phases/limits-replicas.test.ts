import { afterEach, describe, expect, test } from '@jest/globals'
import type { Replica } from '../../src/index.js'
import { setLimit } from '../../src/lock/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { replicaOf, thingOf, thingSpec, things, thingWith } from '../support/thing.js'

describe('a limit', () => {
  const replicas: Replica[] = []
  afterEach(() => Promise.all(replicas.splice(0).map((replica) => replica.stop())))
  // After that, so that it goes last.
  const database = useDatabase()

  test.each<[string, object, object, number]>([
    ['a lifecycle, by name', { limits: ['api'] }, {}, 3],
    ['a lifecycle, declared', { limits: [{ name: 'api', slots: 3 }] }, {}, 3],
    ['a phase', {}, { limits: ['api'] }, 3],
    ['a phase whose steps need two slots', {}, { limits: ['api'], slots: 2 }, 1],
    ['a lifecycle and a phase', { limits: ['other'] }, { limits: [{ name: 'api', slots: 3 }] }, 2],
    ['maxActive', { maxActive: 3 }, {}, 3],
  ])('of %s: no more at once on three replicas, and all are done once', async (_what, settings, phase, most) => {
    const seen = { now: 0, most: 0, runs: 0 }
    await setLimit(database.db, 'api', { slots: 3 })
    await setLimit(database.db, 'other', { slots: 2 })
    const lifecycle = thingWith(
      async (_doc, step) => {
        seen.now += 1
        seen.runs += 1
        seen.most = Math.max(seen.most, seen.now)
        await sleep(5)
        seen.now -= 1
        return step.moveTo('Created')
      },
      thingOf({ ...settings, phases: { ...thingSpec.phases, Creating: { ...thingSpec.phases.Creating, ...phase } } }),
    )
    for (let i = 0; i < 3; i += 1) {
      const replica = replicaOf(database.db, lifecycle)
      replicas.push(replica)
      await replica.start()
    }
    const documents = Array.from({ length: 40 }, (_, i) => ({ _id: `d${i}`, phase: 'Creating' }))
    await things(database.db).insertMany(documents)
    await eventually(async () => expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(40), {
      timeoutMs: 30_000,
    })
    expect(seen).toMatchObject({ now: 0, runs: 40 })
    expect(seen.most).toBeLessThanOrEqual(most)
    expect(await things(database.db).countDocuments({ 'progress.claims': { $gt: 0 } })).toBe(0)
  })
})
