import { describe, expect, jest, test } from '@jest/globals'
import { eventually, useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('the commands that pause work', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })

  test('pause a limit before any lifecycle is registered, as limits set sets one', async () => {
    expect((await run('limits', 'set', 'ink', '--slots', '1')).code).toBe(0)
    expect(await run('limits', 'pause', 'ink', '--by', 'ana')).toMatchObject({
      code: 0,
      out: 'limit ink: paused by ana until it is resumed\n',
    })
    expect((await run('limits', 'resume', 'ink')).out).toMatch(/^limit ink: resumed; it was paused .+ by ana\n$/)
    expect((await run('pause', '--all', '--by', 'ana')).err).toContain('no lifecycles in the database')
  })

  test('pause, resume and list; count, list and show tell', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await replica.prepare()
    await things(database.db).insertMany([
      { _id: 'a', phase: 'Creating' },
      { _id: 'b', phase: 'Created' },
    ])
    expect(await run('pauses')).toMatchObject({ code: 0, out: 'nothing is paused\n', err: '' })
    expect((await run('pauses', '--json')).json()).toEqual([])

    const paused = await run(
      'pause',
      'thing',
      '--phase',
      'Creating',
      '--for',
      '2h',
      '--by',
      'ana',
      '--reason',
      'no ink',
    )
    expect(paused).toMatchObject({ code: 0, err: '' })
    expect(paused.out).toMatch(/^thing, phase Creating: paused by ana until 20\S+Z: no ink\n$/)
    expect((await run('pause', 'thing', 'b', '--by', 'ben')).out).toBe('thing b: paused by ben until it is resumed\n')
    await replica.runOnce()

    const pauses = await run('pauses')
    expect(pauses.out).toMatch(/^WHAT +SINCE +UNTIL +BY +REASON$/m)
    expect(pauses.out).toMatch(/^thing, phase Creating +(\d+ m?s ago|now) +in .* +ana +no ink$/m)
    expect(pauses.out).toMatch(/^thing b +(\d+ m?s ago|now) +resumed +ben +-$/m)
    expect((await run('pauses', 'thing', '--json')).json()).toMatchObject([
      { lifecycle: 'thing', what: 'phase', phase: 'Creating', by: 'ana', reason: 'no ink' },
      { lifecycle: 'thing', what: 'document', _id: 'b', by: 'ben', reason: null, until: null },
    ])

    expect((await run('count', '--fresh')).out).toMatch(/^thing +Creating \(paused\) +1 +1/m)
    expect((await run('count', '--fresh', '--json')).json()).toContainEqual(
      expect.objectContaining({ phase: 'Creating', paused: true }),
    )
    expect((await run('list', 'thing')).out).toMatch(/^a +Creating +- +due \(paused\) +paused by ana: no ink$/m)
    expect((await run('list', 'thing', '--json')).json()).toContainEqual(
      expect.objectContaining({ why: 'paused by ben', pause: expect.objectContaining({ what: 'document' }) }),
    )
    expect((await run('show', 'a')).out).toMatch(
      /^Paused with its phase by ana .+: 'no ink'; no step of it begins until that ends in .+, or it is resumed \(phaselock resume thing --phase Creating\)\. Due( since .+)?\.$/m,
    )
    expect((await run('show', 'b')).out).toMatch(
      /^Paused by ben .+; no step of it begins until it is resumed \(phaselock resume thing b\)\. Rests in Created/m,
    )
    expect((await run('show', 'b', '--json')).json()).toMatchObject({ pause: { what: 'document', by: 'ben' } })

    expect((await run('resume', 'thing', '--phase', 'Creating')).out).toMatch(
      /^thing, phase Creating: resumed; it was paused .+ by ana; thing b is still paused by ben\n$/,
    )
    expect((await run('resume', 'thing', 'b', '--json')).json()).toMatchObject([{ what: 'document', _id: 'b' }])
    expect((await run('pause', '--all', '--json')).json()).toMatchObject([{ lifecycle: 'thing', what: 'all' }])
    expect((await run('limits', 'set', 'ink', '--slots', '1')).code).toBe(0)
    expect((await run('limits', 'pause', 'ink', '--by', 'ana', '--for', '1h', '--reason', 'none')).out).toMatch(
      /^limit ink: paused by ana until 20\S+Z: none\n$/,
    )
    expect((await run('pauses')).out).toMatch(/^limit ink +(\d+ m?s ago|now) +in .* +ana +none$/m)
    expect((await run('limits')).out).toMatch(/^ink +1 \(paused\) +0 +- +-$/m)
    expect((await run('limits', 'resume', 'ink')).out).toMatch(/^limit ink: resumed; it was paused .+ by ana\n$/)
    expect((await run('resume', '--all')).out).toMatch(/^thing: resumed; it was paused .+\n$/)
    await replica.runOnce()
    expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created' })
    await replica.stop()
  })

  test('cancel stops what runs, and says what has become of it', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (doc, step) => {
        if (doc._id === 'deaf') await new Promise((resolve) => setTimeout(resolve, 8_000))
        else
          await new Promise((_resolve, reject) =>
            step.signal.addEventListener('abort', () => reject(step.signal.reason)),
          )
        return step.moveTo('Created')
      }),
    )
    await replica.start()
    await things(database.db).insertMany([
      { _id: 'a', phase: 'Creating' },
      { _id: 'deaf', phase: 'Creating' },
      { _id: 'rests', phase: 'Created' },
    ])
    await eventually(() => expect(replica.status().running).toBe(2))
    const cancelled = await run('cancel', 'a', '--by', 'ana', '--reason', 'stuck')
    expect(cancelled).toMatchObject({ code: 0, err: '' })
    expect(cancelled.out).toMatch(
      /^thing a: its step on \S+#\d+\.\d+ has ended\. Parked because 'cancelled by ana: stuck': it waits for a person \(unpark\)/,
    )
    const deaf = await run('cancel', 'deaf', '--wait', '10ms', '--json')
    expect(deaf.json()).toMatchObject({ _id: 'deaf', ended: false, condition: { kind: 'held' }, phase: 'Creating' })
    expect((await run('show', 'deaf')).out).toMatch(/; its step was cancelled by .+, and ends when its handler does\./)
    expect(await run('cancel', 'rests')).toMatchObject({
      code: 4,
      err: "phaselock: thing rests can't be cancelled: no step of it runs (it is resting); to keep the next one from beginning: phaselock pause\n",
    })
    expect(await run('cancel', 'nobody')).toMatchObject({ code: 3 })
    await replica.stop()
  })

  test('say what they expected', async () => {
    expect(await run('pause', 'thing')).toMatchObject({ code: 3, err: expect.stringContaining('no lifecycles in') })
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await replica.prepare()
    const mistakes: [string[], number, string][] = [
      [['pause'], 2, 'expected a lifecycle or --all'],
      [['pause', '--phase', 'Creating'], 2, 'expected a lifecycle or --all'],
      [['pause', '--limit', 'ink'], 2, 'expected limits pause <name>, got --limit: it is a command of its own now'],
      [['resume', '--limit', 'ink'], 2, 'expected limits resume <name>, got --limit: it is a command of its own now'],
      [['limits', 'pause', 'ink'], 3, "there is no limit 'ink'; see: phaselock limits"],
      [['limits', 'resume', 'ink'], 4, "limit ink isn't paused"],
      [['pause', 'thing', '--all'], 2, 'expected --all or a lifecycle, got both (thing)'],
      [['pause', 'thing', '--for', '2'], 2, "expected a duration such as '30s', '5m', '1h' or '2d', got \"2\""],
      [['pause', 'thing', '--for', '0s'], 2, 'expected a duration (for) of at least 1s, got 0s; nothing was paused'],
      [['pause', 'thing', '--until', 'tomorrow'], 2, 'expected a time with its zone, such as 2026-12-01T06:00:00Z.'],
      [['pause', 'thing', '--until', '2020-01-01T00:00:00Z'], 2, 'expected a time in the future, got 2020-01-01'],
      [['pause', 'thing', 'nobody'], 3, 'no document with the _id nobody in thing'],
      [['resume', 'thing'], 4, "thing isn't paused as such: nothing is; see: phaselock pauses"],
      [['resume', '--all'], 4, "everything isn't paused as such: nothing is"],
      [['pauses', 'thong'], 2, "expected a lifecycle (thing), got 'thong'"],
    ]
    for (const [args, code, problem] of mistakes) {
      const { err, ...rest } = await run(...args)
      expect({ args, err, code: rest.code, out: rest.out }).toEqual({
        args,
        err: expect.stringContaining(problem),
        code,
        out: '',
      })
    }
    await replica.stop()
  })
})
