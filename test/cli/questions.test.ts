import { describe, expect, jest, test } from '@jest/globals'
import { useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('the commands for questions', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })

  test('questions lists them, answer answers one; list, show and count tell', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (doc, step) => {
        if (step.answer) return step.moveTo('Created')
        const options =
          doc._id === 'a' ? { options: ['yes', 'no'], to: 'ops', timeout: '2h' as const, onTimeout: 'no' } : {}
        return step.ask({ question: `Ship ${doc._id}?`, ...options })
      }),
    )
    await replica.prepare()
    expect(await run('questions')).toMatchObject({ code: 0, out: 'nothing is asked\n', err: '' })
    expect((await run('questions', '--json')).json()).toEqual([])
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    await things(database.db).insertOne({ _id: 'b', phase: 'Creating' })
    await replica.runOnce()

    const listed = await run('questions')
    expect(listed.out).toMatch(/^LIFECYCLE +ID +QUESTION +ANSWERS +TO +ASKED +ENDS$/m)
    expect(listed.out).toMatch(
      /^thing +a +Ship a\? +yes, no +ops +\S.* +in .* \(no\)\nthing +b +Ship b\? +any text +- +\S.* +-$/m,
    )
    expect((await run('questions', 'thing', '--json')).json()).toMatchObject([
      { lifecycle: 'thing', _id: 'a', question: 'Ship a?', options: ['yes', 'no'], to: ['ops'], onTimeout: 'no' },
      { lifecycle: 'thing', _id: 'b', question: 'Ship b?', options: [], to: [], deadline: null, times: 1 },
    ])
    expect((await run('list', 'thing')).out).toMatch(
      /^a +Creating +- +asking, ends in .* +asks Ship a\? \(yes or no\), of ops$/m,
    )
    expect((await run('count')).out).toMatch(/^thing +Creating +2 +- +- +2 \(2 asking\) +-$/m)
    expect((await run('show', 'b')).out).toMatch(
      /^Asks 'Ship b\?' since .*answer b <text>\), for as long as that takes\.$/m,
    )

    const refused = await run('answer', 'a', 'maybe')
    expect(refused.code).toBe(4)
    expect(refused.err).toContain("thing a can't be answered: expected one of yes, no, got 'maybe'; nothing was stored")
    const long = await run('answer', 'a', 'yes', '--comment', 'x'.repeat(1_001))
    expect(long).toMatchObject({ code: 2, err: 'phaselock: comment: expected at most 1000 characters\n' })
    const answered = await run('answer', 'a', 'yes', '--by', 'ana', '--comment', 'checked')
    expect(answered).toMatchObject({ code: 0, err: '' })
    expect(answered.out).toBe("thing a: 'yes' to 'Ship a?', by ana; it is due now\n")
    const twice = await run('answer', 'a', 'no', '--json')
    expect(twice.code).toBe(4)
    expect(twice.out + twice.err).toContain("ana has answered 'yes'")
    expect((await run('answer', 'b', 'on Monday', '--by', 'ben', '--json')).json()).toEqual({
      ...{ lifecycle: 'thing', _id: 'b', question: 'Ship b?', option: 'on Monday', by: 'ben', comment: null },
    })
    await replica.runOnce()
    expect((await run('answer', 'a', 'yes')).err).toContain('it asks nothing now; see: phaselock questions')
    expect(await run('answer', 'nobody', 'yes')).toMatchObject({ code: 3 })
    expect((await run('questions')).out).toBe('nothing is asked\n')
    await replica.stop()
  })
})
