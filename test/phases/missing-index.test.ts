import { describe, expect, test } from '@jest/globals'
import { checkIndexes } from '../../src/operations/check/check-indexes.js'
import { useDatabase } from '../support/database.js'
import { recordingLogger, replicaOf, ShiftedClock, things, thingWith } from '../support/thing.js'

const CLAIM = 'phase_1_lockedAt_1_updatedAt_1'
const STATE = 'state_1_phase_1'
const claimProblem =
  'Thing has no index {"phase":1,"lockedAt":1,"updatedAt":1}, and nothing is read from it without one; ' +
  "to create it, run phaselock check --repair, or restart a replica with indexes: 'create'"
const stateProblem =
  'Thing has no index {"state":1,"phase":1}, and nothing is read from it without one; ' +
  "to create it, run phaselock check --repair, or restart a replica with indexes: 'create'"

describe('an index of the protocol that is dropped under a replica', () => {
  const database = useDatabase()

  function working() {
    const [clock, logger] = [new ShiftedClock(), recordingLogger()]
    const handler = thingWith(async (_doc, step) => step.moveTo('Created'))
    const replica = replicaOf(database.db, handler, { clock, logger })
    const tick = async () => {
      await replica.tick()
      await replica.idle()
    }
    const said = () =>
      logger.lines
        .filter(({ message }) => /failed|again/.test(message))
        .map(({ level, message }) => `${level}: ${message}`)
    const insert = (_id: string) => things(database.db).insertOne({ _id, phase: 'Creating' })
    const phaseOf = async (_id: string) => (await things(database.db).findOne({ _id }))?.['phase']
    return { clock, replica, tick, said, insert, phaseOf }
  }

  test('the claim index: the log and readiness name it and the remedy, and nothing works again until a claim has', async () => {
    const { clock, replica, tick, said, insert, phaseOf } = working()
    await insert('before')
    await tick()
    await things(database.db).dropIndex(CLAIM)
    await insert('after')
    for (let second = 0; second < 35; second += 1) {
      await tick()
      clock.advance(1_000)
    }
    expect(await phaseOf('after')).toBe('Creating')
    // The clock runs on while it works: a line each 30 s of it, after 30 ticks or somewhat fewer.
    const lines = said().map((line) => line.replace(/ \d+ times/, ' n times'))
    expect(lines).toEqual([
      `error: thing: claiming failed: ${claimProblem}`,
      `error: thing: claiming failed n times: ${claimProblem}`,
    ])
    expect(replica.status().notReady).toEqual([claimProblem])

    await checkIndexes({ db: database.db, models: [], collections: ['Thing'], repair: true })
    await tick()
    expect(await phaseOf('after')).toBe('Created')
    expect(said().slice(2)).toEqual([
      expect.stringMatching(/^info: thing: claiming works again after .* and 35 failures$/),
    ])
    expect(replica.status().notReady).toEqual([])
    await replica.stop()
  })

  test('it is back when nothing is due any more: the replica is ready again', async () => {
    const { replica, tick, said, insert } = working()
    await tick()
    await things(database.db).dropIndex(CLAIM)
    await insert('due')
    await tick()
    await things(database.db).deleteMany({})
    await checkIndexes({ db: database.db, models: [], collections: ['Thing'], repair: true })
    await tick()
    expect(said().at(-1)).toMatch(/^info: thing: claiming works again after /)
    expect(replica.status().notReady).toEqual([])
    await replica.stop()
  })

  test("the index of states: a rule's tick fails for its sake, and says so", async () => {
    const { replica, tick, said } = working()
    await tick()
    await things(database.db).insertOne({ _id: 'leaving', phase: 'Created', state: 'Deleted' })
    await things(database.db).dropIndex(STATE)
    await tick()
    expect(said()).toEqual([`error: the tick failed: ${stateProblem}`])
    expect(replica.status().notReady).toEqual([stateProblem])
    await checkIndexes({ db: database.db, models: [], collections: ['Thing'], repair: true })
    await tick()
    expect(said().at(-1)).toMatch(/^info: the tick works again after /)
    await replica.stop()
  })
})
