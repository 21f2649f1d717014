import { describe, expect, jest, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { THINGS, useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

const ASLEEP = { lockedAt: new Date(Date.now() + 3_600_000), fence: 1, progress: { waitingFor: 'rain' } }

describe('why, --dry-run and --seen', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (...args: string[]) =>
    folder().run(args, { MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS, PHASELOCK_DOORBELL: 'off' })
  const things = () => database.db.collection('Thing') as unknown as Collection<{ _id: string } & Document>
  const thing = (_id: string) => things().findOne({ _id })

  test('why: each term, what helps and what it would do; as JSON', async () => {
    await things().insertOne({
      _id: 'a',
      phase: 'Creating',
      lockedAt: PARKED_AT,
      progress: { history: [{ at: new Date(), outcome: 'park', reason: 'no ink', by: 'api~1#2.3' }] },
    })
    const { code, out, err } = await run('why', 'a')
    expect({ code, err }).toEqual({ code: 0, err: '' })
    expect(out).toMatch(/^thing a: Parked because 'no ink'/)
    expect(out).toMatch(/^HOLDS +TERM +FINDING$/m)
    expect(out).toMatch(/^yes +shape /m)
    expect(out).toMatch(/^NO +park +it is parked by api~1#2\.3/m)
    expect(out).toMatch(/^NO +replica +no replica of thing is live$/m)
    expect(out).toMatch(/^\? +turn /m)
    expect(out).toContain('What helps: phaselock unpark a (gives it another try)\nThen: Due')
    expect(out).toMatch(/^Seen: [0-9a-f]{24} /m)
    const json = (await run('why', 'a', '--json')).json() as Document
    expect(json).toMatchObject({
      lifecycle: 'thing',
      document: 'a',
      condition: 'parked',
      blockedBy: 'park',
      action: { kind: 'unpark', prediction: { blockedBy: 'replica' } },
    })
    expect(out).toContain(json['seen'])
    expect((await run('show', 'a', '--json')).json()).toMatchObject({ seen: json['seen'] })
    expect(await run('why', 'nothing')).toMatchObject({ code: 3 })
  })

  test('resume --of --dry-run: the end of the pause that is meant', async () => {
    await things().insertOne({ _id: 'rests', phase: 'Created' })
    await database.db
      .collection<{ _id: string }>('phaselock.lifecycles')
      .insertOne({ _id: 'thing', lockTimeout: 30_000 } as never)
    for (const by of ['ana', 'ben'])
      expect(await run('pause', 'thing', 'rests', '--by', by)).toMatchObject({ code: 0, err: '' })
    const resumed = await run('resume', 'thing', 'rests', '--by', 'ana', '--of', 'ben', '--dry-run')
    expect(resumed).toMatchObject({
      code: 0,
      err: '',
      out: expect.stringMatching(/^thing rests: the pause by ben would end/),
    })
  })

  test('--dry-run: what it would change and what comes next; nothing is changed', async () => {
    await things().insertMany([
      { _id: 'asleep', phase: 'Creating', ...ASLEEP },
      { _id: 'parked', phase: 'Creating', lockedAt: PARKED_AT, progress: { attempts: 3 } },
      { _id: 'rests', phase: 'Created' },
      { _id: 'held', phase: 'Creating', lockedAt: new Date(), lockedBy: 'api~1#2.3' },
    ])
    const before = await things().find().toArray()
    const woken = await run('wake', 'asleep', '--dry-run')
    expect(woken).toMatchObject({ code: 0, err: '' })
    expect(woken.out).toMatch(
      /^thing asleep: it would change lockedAt, updatedAt \(--dry-run: it was not\)\n {2}lockedAt: \S+ -> 1970-01-01T00:00:00\.000Z\n {2}updatedAt: - -> \S+\nThen: Due/,
    )
    expect(woken.out).toMatch(/--seen [0-9a-f]{24}\n$/)
    const unparked = await run('unpark', 'parked', '--by', 'ana', '--dry-run', '--json')
    expect(unparked.json()).toMatchObject({
      action: 'unpark',
      would: 'change',
      before: { 'progress.attempts': 3 },
      after: { 'progress.attempts': 0 },
      why: { blockedBy: 'replica' },
    })
    expect((await run('set-state', 'rests', 'Deleted', '--dry-run')).out).toContain(
      'Then: Its owner wants Deleted: the next look moves it to Deleting',
    )
    expect((await run('cancel', 'held', '--dry-run')).out).toMatch(/its step would be asked to stop/)
    expect((await run('remove', 'rests', '--dry-run')).out).toMatch(/^thing rests: it would be deleted/)
    expect((await run('pause', 'thing', 'asleep', '--by', 'ana', '--dry-run')).out).toMatch(/Then: Paused by ana/)
    const refused = await run('unpark', 'asleep', '--dry-run')
    expect(refused).toMatchObject({ code: 4, err: expect.stringContaining("it isn't parked") })
    expect((await run('answer', 'asleep', 'yes', '--dry-run')).code).toBe(4)
    const both = await run('wake', 'asleep', 'rests', '--dry-run', '--json')
    expect(both.json()).toMatchObject([{ document: 'asleep' }, { document: 'rests' }])
    expect(await run('pause', 'thing', '--dry-run')).toMatchObject({ code: 2 })
    expect(await things().find().toArray()).toEqual(before)
  })

  test('--seen: done once, refused after', async () => {
    await things().insertOne({ _id: 'a', phase: 'Creating', ...ASLEEP })
    const { seen } = (await run('why', 'a', '--json')).json() as { seen: string }
    expect(await run('wake', 'a', '--seen', seen)).toMatchObject({ code: 0 })
    expect(await thing('a')).toMatchObject({ lockedAt: TASK_LOCK_INIT_TIME })
    const again = await run('wake', 'a', '--seen', seen)
    expect(again).toMatchObject({
      code: 4,
      err: expect.stringMatching(
        /thing a has changed since it was seen \(lockedAt\), so nothing was done; its last recorded change: wake, by /,
      ),
    })
    expect(await run('set-state', 'a', 'Deleted', '--seen', seen)).toMatchObject({ code: 4 })
    expect(await run('remove', 'a', '--yes', '--seen', seen)).toMatchObject({ code: 4 })
    expect(await run('pause', 'thing', 'a', '--seen', seen)).toMatchObject({ code: 4 })
    expect(await run('wake', 'a', 'b', '--seen', seen)).toMatchObject({ code: 2 })
    expect(await run('wake', 'a', '--seen', 'xyz')).toMatchObject({ code: 2 })
  })
})
