import { describe, expect, jest, test } from '@jest/globals'
import { useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('phaselock audit', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })

  test('lists what the commands did, for whom and why; commands that only read leave nothing', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await replica.prepare()
    expect(await run('audit')).toMatchObject({ code: 0, out: 'no such entries\n', err: '' })
    await things(database.db).insertMany([
      { _id: 'held', phase: 'Creating', lockedAt: new Date(), lockedBy: 'r~1#1.1', fence: 1, progress: {} },
      { _id: 'parked', phase: 'Creating', lockedAt: new Date('9999-12-31'), progress: { attempts: 3 } },
    ])
    const did: [string[], number][] = [
      [['add', 'thing', '{"_id":"a"}', '--by', 'ana'], 0],
      [['wake', 'a', 'held', '--by', 'ana', '--reason', 'the truck is here'], 4],
      [['unpark', 'parked', '--by', 'ben', '--reason', 'x'.repeat(120)], 0],
      [['set-state', 'a', 'Deleted', '--by', 'ben'], 0],
      [['pause', 'thing', '--phase', 'Creating', '--by', 'ana', '--reason', 'no ink'], 0],
      [['resume', 'thing', '--phase', 'Creating', '--by', 'ana', '--reason', 'new ink'], 0],
      [['limits', 'set', 'ink', '--slots', '3', '--by', 'ana'], 0],
      [['limits', 'set', 'ink', '--slots', '5', '--by', 'ana', '--reason', 'more ink'], 0],
      [['limits', 'remove', 'ink', '--by', 'ana'], 0],
      [['set-lock-timeout', 'thing', '40s', '--by', 'ana'], 0],
      [['remove', 'a', '--yes', '--by', 'ana', '--reason', 'a test'], 0],
      [['list'], 0],
      [['show', 'parked'], 0],
    ]
    for (const [args, code] of did) expect({ args, ...(await run(...args)) }).toMatchObject({ args, code })
    const entries = (await run('audit', '--json')).json() as { [field: string]: unknown }[]
    expect(entries.map(({ by, action, outcome }) => `${by} ${action} ${outcome}`)).toEqual([
      'ana remove done',
      'ana set-lock-timeout done',
      'ana limits remove done',
      'ana limits set done',
      'ana limits set done',
      'ana resume done',
      'ana pause done',
      'ben set-state done',
      'ben unpark done',
      'ana wake refused',
      'ana wake done',
      'ana insert done',
    ])
    expect(entries[3]).toMatchObject({
      target: 'limit ink',
      before: { slots: 3 },
      after: { slots: 5 },
      why: 'more ink',
    })
    expect(entries[6]).toMatchObject({ target: 'thing phase Creating', why: 'no ink' })
    expect(entries[9]).toMatchObject({ problem: 'held', document: 'held', before: { lockedBy: 'r~1#1.1' } })
    const { out } = await run('audit', 'a')
    expect(out).toMatch(/^WHEN +BY +ACTION +ON +OUTCOME +CHANGE +WHY$/m)
    expect(out).toMatch(/^\S+( \S+ ago)? +ben +set-state +thing a +done +state: - -> Deleted +-$/m)
    expect(out.trim().split('\n')).toHaveLength(5)
    expect((await run('audit', '--action', 'limits set', '--limit', '1')).out).toMatch(
      /limit ink +done +slots: 3 -> 5 +more ink\n\(the newest 1; --limit shows more\)\n$/,
    )
    expect((await run('audit', '--by', 'ben', '--last', '1h', '--json')).json()).toHaveLength(2)
    expect((await run('audit', '--until', '2020-01-01T00:00:00Z', '--json')).json()).toEqual([])

    const mistakes: [string[], string][] = [
      [['audit', '--last', 'soon'], 'expected a duration'],
      [['audit', '--since', 'today'], 'expected a time with its zone'],
      [['audit', '--lifecycle', 'thong'], "expected a lifecycle (thing), got 'thong'"],
      [['wake', 'parked', '--by', ''], '--by: expected a name of 1 to 200 characters, got none'],
      [['audit', '--by', ''], 'by: expected a name, got an empty string'],
      [['wake', 'parked', '--reason', 'x'.repeat(501)], '--reason: expected at most 500 characters, got 501'],
      [['wake', 'parked', '--why', 'rain'], 'expected --reason, got --why: it is called --reason now'],
      [['answer', 'parked', 'yes', '--comment', 'rain'], 'expected --reason, got --comment: it is called --reason now'],
    ]
    for (const [args, problem] of mistakes) {
      expect({ args, ...(await run(...args)) }).toMatchObject({ args, code: 2, err: expect.stringContaining(problem) })
    }
    await replica.stop()
  })
})
