import { describe, expect, jest, test } from '@jest/globals'
import { jobsWith, removedJob, said, useJobs } from '../phases/callbacks-fixture.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('phaselock callbacks', () => {
  const { database, insert, prepared, pass } = useJobs()
  const folder = useCliFolder()
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })

  test('lists what has not been told, has it tried again, and skips it; show and the audit tell', async () => {
    let isAway = true
    const { told, lifecycle } = jobsWith(() => {
      if (isAway) throw new Error('the shop is away')
    })
    const replica = await prepared([lifecycle])
    expect((await run('callbacks')).out).toBe('all callbacks have been told\n')
    await insert()
    await insert('k')
    await replica.runOnce()
    expect((await run('show', 'j')).out).toMatch(
      /^Rests in Done .* 2 calls of its callbacks are to come: onMoved of First -> Second, tried once: 'the shop is away'; next .* (s|ms|ago)\.$/m,
    )
    for (let i = 0; i < 2; i += 1) {
      await pass(30_000)
      await replica.runOnce()
    }
    const listed = await run('callbacks')
    expect(listed.out).toMatch(/^LIFECYCLE +ID +CALLBACK +FROM -> TO +SINCE +OPEN +TRIES +NEXT +ERROR$/m)
    expect(listed.out).toMatch(
      /^job +j +onMoved +First -> Second +.* ago +2 +3 +waits for a person +the shop is away$/m,
    )
    expect((await run('callbacks', 'job', '--json')).json()).toMatchObject([
      { lifecycle: 'job', callback: 'onMoved', seq: 1, open: 2, tries: 3, error: 'the shop is away', dueAt: null },
      { lifecycle: 'job' },
    ])
    expect((await run('show', 'j')).out).toMatch(/; it waits for a person \(phaselock callbacks retry\)\.$/m)

    isAway = false
    told.splice(0)
    const retried = await run('callbacks', 'retry', 'j', '--by', 'ana')
    expect(retried).toMatchObject({ code: 0, out: 'job j: onMoved (event 1) is called again\n', err: '' })
    const skipped = await run('callbacks', 'retry', 'k', '--skip', '--by', 'ana', '--json')
    expect(skipped.json()).toEqual({ lifecycle: 'job', _id: 'k', callback: 'onMoved', seq: 1, skipped: true })
    await replica.runOnce()
    expect(said(told.filter(({ id }) => id === 'j'))).toEqual(['1 onMoved First>Second', '2 onMoved Second>Done'])
    expect(said(told.filter(({ id }) => id === 'k'))).toEqual(['2 onMoved Second>Done'])
    const nothing = await run('callbacks', 'retry', 'j')
    expect(nothing.code).toBe(4)
    expect(nothing.err).toContain('job j has nothing to tell its callbacks')
    expect((await run('audit', 'k')).out).toMatch(/ana +callbacks skip +job k +done/)
  })

  test('a document that is removed is told of, and shown until then; --skip deletes it', async () => {
    let isAway = true
    const { told, lifecycle } = jobsWith(({ callback }) => {
      if (isAway && callback === 'onRemoved') throw new Error('the shop is away')
    }, removedJob)
    const replica = await prepared([lifecycle])
    await insert()
    await insert('k')
    await replica.runOnce()
    const removed = await run('remove', 'j', '--yes', '--by', 'ana', '--reason', 'a twin')
    expect(removed).toMatchObject({ code: 0, err: '' })
    expect(removed.out).toBe('job j: removed; it is deleted when its callbacks have been told\n')
    await run('remove', 'k', '--yes')
    await replica.runOnce()
    expect(told.at(-1)!.callback).toBe('onRemoved')
    expect(told.find(({ id, seq }) => id === 'j' && seq === 3)).toMatchObject({ by: 'ana', reason: 'a twin' })
    expect((await run('show', 'j')).out).toMatch(/^job j: removed$/m)
    expect((await run('show', 'j')).out).toMatch(
      /^Removed from Done .*: it is deleted when its callbacks have been told, and nothing revives it until then\. A call of its callbacks is to come: onRemoved in Done, tried once: 'the shop is away'; next .*\.$/m,
    )
    expect((await run('list', 'job')).out).toMatch(/^j +\(removed\) .* removed, tells its callbacks/m)
    expect((await run('count', '--fresh')).out).toMatch(/^job +\(removed\) +2/m)
    expect((await run('callbacks')).out).toMatch(/^job +j +onRemoved +Done +.* ago +1 +1 +.* +the shop is away$/m)
    const again = await run('remove', 'j', '--yes')
    expect(again.code).toBe(4)
    expect(again.err).toContain('job j is removed: it is deleted when its callbacks have been told')
    const added = await run('add', 'job', '{"_id":"j"}', '--on-duplicate', 'runAgain')
    expect(added.code).toBe(4)
    expect(added.err).toContain('it is removed, and deleted when its callbacks have been told')
    expect((await run('callbacks', 'retry', 'k', '--skip')).code).toBe(0)
    expect((await run('show', 'k')).code).toBe(3)
    isAway = false
    await run('callbacks', 'retry', 'j')
    await replica.runOnce()
    expect((await run('show', 'j')).code).toBe(3)
  })
})
