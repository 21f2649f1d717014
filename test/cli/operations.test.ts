import { describe, expect, jest, test } from '@jest/globals'
import { type Document, Long } from 'mongodb'
import { silentLogger } from '../../src/index.js'
import { ASLEEP, BulkWorld, HELD, many, PARKED } from '../operations/bulk-world.js'
import { eventually, useDatabase } from '../support/database.js'
import { replicaOf, thingWith } from '../support/thing.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('phaselock operations', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })
  const woken = (w: BulkWorld) => w.things.countDocuments({ lockedAt: new Date(0) })

  test('run previews, asks for --yes, works until it is done, and says what it left alone; list, show and audit tell', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany([...many(30, { ...ASLEEP, n: 1 }), { _id: 'held', phase: 'Creating', ...HELD, n: 1 }])
    expect(await run('operations')).toMatchObject({
      code: 0,
      out: expect.stringContaining('no operations; to begin one'),
    })
    const wake = [
      'operations',
      'run',
      'wake',
      '--lifecycle',
      'thing',
      '--filter',
      '{"n":1}',
      '--by',
      'ana',
      '--reason',
      'the truck is here',
    ]
    const preview = await run(...wake, '--dry-run')
    expect(preview).toMatchObject({ code: 0, err: '' })
    expect(preview.out).toMatch(/^wake 31 documents of thing, such as:\n {2}thing \S+: Creating\. /)
    expect(preview.out.split('\n').slice(6)).toEqual([
      'all 31 were looked at: 30 would be done, 1 left alone',
      '  left alone 1: it is held, so it is being worked on (held)',
      '  Creating, sleeping: 30 of 30',
      '  Creating, held: 0 of 1',
      'takes 31 ms by its rate; longer if the database is slower',
      'then 30 in Creating: unknown how long: none has left it in the last hour',
      'nothing was changed; without --dry-run it is done',
      '',
    ])
    expect((await run(...wake, '--dry-run', '--json')).json()).toMatchObject({
      ...{ action: 'wake', count: 31 },
      radius: {
        ...{ looked: 31, sampledOf: null, done: { n: 30 }, unchanged: { n: 0 }, openChildren: [] },
        leftAlone: [{ reason: 'it is held, so it is being worked on', documents: { n: 1 }, examples: ['held'] }],
        time: { leastMs: 31, phases: [{ phase: 'Creating', documents: { n: 30 }, flowMs: null }] },
      },
    })
    expect(await run(...wake)).toMatchObject({
      code: 2,
      err: 'phaselock: expected yes, or --yes, to wake 31 documents of thing; nothing was changed\n',
    })
    expect(await woken(w)).toBe(0)

    const done = await run(...wake, '--yes')
    expect(done.code).toBe(0)
    // On a busy machine it tells how far it is, once a second.
    expect(done.err).toMatch(/^(wake-\w{8}: .* left\n)*$/)
    expect(done.out).toMatch(
      /^wake-\w{8}: Done; of 31 documents 30 done, 1 skipped, in .*\n {2}skipped 1: it is held, so it is being worked on \(held\)\n$/,
    )
    expect(await woken(w)).toBe(30)
    const [id = ''] = /wake-\w+/.exec(done.out) ?? []
    expect((await run('operations')).out).toMatch(
      new RegExp(`^${id} +thing +Done +31 of 31 +30 +1 +- +\\S+/s +- +\\S.* +ana$`, 'm'),
    )
    expect((await run('operations', 'show', id)).out).toMatch(
      /where \{.*"n".*\}; 31 matched\n {2}by ana: the truck is here\n$/,
    )
    expect((await run('operations', '--json')).json()).toMatchObject([{ _id: id, condition: 'Done', leftMs: null }])
    expect((await run('audit', '--json')).json()).toMatchObject([
      {
        action: 'operations run wake',
        by: 'ana',
        why: 'the truck is here',
        target: `operation ${id}`,
        outcome: 'done',
      },
    ])
    expect(await run('operations', 'resume')).toMatchObject({ code: 0, out: 'no operation is under way\n' })
    expect((await run('check')).out).not.toContain('phaselock-operation')
  })

  test('a sample is said to be one, and what is unknown too', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany([...many(1_100, ASLEEP), ...many(1_100, PARKED, 'p')])
    const { out } = await run(
      'operations',
      'run',
      'migrate',
      '--lifecycle',
      'thing',
      '--all',
      '--to-phase',
      'Deleting',
      '--dry-run',
    )
    expect(out).toContain('a sample of 1,000 was looked at: ~2,200 would be done\n')
    expect(out).toMatch(/^ {2}Creating, parked, [\da-f]{12} \(no tape\): ~1,\d{3} of ~1,\d{3}$/m)
    expect(out).toContain('then: which steps run is unknown\n')
  })

  test('run --first acts on a few, watches what they record, and stops when these fail again; unpark has more tried', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(8, PARKED))
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.park('no tape')),
      { logger: silentLogger },
    )
    await replica.start()
    try {
      const args = [
        'operations',
        'run',
        'unpark',
        '--lifecycle',
        'thing',
        '--parked',
        '--first',
        '2',
        '--watch-for',
        '1m',
      ]
      expect((await run(...args, '--dry-run')).out).toContain('takes 8 ms by its rate, and up to 1 min of watching; ')
      const stopped = await run(...args, '--yes')
      expect(stopped).toMatchObject({ code: 1, err: expect.stringContaining('got failures in unpark-') })
      expect(stopped.out).toMatch(
        /^unpark-\w{8}: Parked \(of the 2 that it acted on 2 failed for the same cause, [\da-f]{12} \(no tape\): d00000, d00001; unpark it to try 2 more documents, or abort it\); of the first 2 of 8 documents 2 done, in /,
      )
      const [id = ''] = /unpark-\w{8}/.exec(stopped.out) ?? []
      expect(await w.things.countDocuments({ 'progress.operations': id })).toBe(2)
      expect(await run('unpark', id)).toMatchObject({ code: 0 })
      expect((await run('operations', 'resume', id)).out).toContain('of the first 4 of 8 documents 4 done')
      expect(await run('operations', 'abort', id)).toMatchObject({ code: 0 })
    } finally {
      await replica.stop()
    }
    expect(await run('operations', 'run', 'remove', '--lifecycle', 'thing', '--all', '--first', '2')).toMatchObject({
      ...{ code: 2, err: expect.stringContaining('first (--first): expected an action after which a step runs') },
    })
  })

  test('redo with other fields, and undo', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(3, { ...PARKED, n: 1 }))
    const args = [
      '--lifecycle',
      'thing',
      '--parked',
      '--to-phase',
      'Deleting',
      '--to-step',
      'label',
      '--set',
      '{"n":2}',
    ]
    const redone = await run('operations', 'run', 'redo', ...args, '--yes')
    expect(redone).toMatchObject({ code: 0, out: expect.stringMatching(/: Done; of 3 documents 3 done, in /) })
    expect(await w.things.countDocuments({ phase: 'Deleting', n: 2, 'progress.step': 'label' })).toBe(3)
    const [id = ''] = /redo-\w+/.exec(redone.out) ?? []
    expect(await run('operations', 'undo', id)).toMatchObject({
      code: 2,
      err: 'phaselock: expected yes, or --yes, to look at 3 documents of thing to undo redo; nothing was changed\n',
    })
    expect(await run('operations', 'undo', id, '--yes')).toMatchObject({
      code: 0,
      out: expect.stringMatching(new RegExp(`^undo-${id}: Done; of 3 documents 3 done, in `)),
    })
    expect(await w.things.countDocuments({ phase: 'Creating', n: 1, lockedAt: PARKED.lockedAt })).toBe(3)
    expect(await run('operations', 'undo', id, '--yes')).toMatchObject({
      code: 4,
      err: expect.stringContaining('exists already'),
    })
  })

  test.each([
    ['digits', (n: Long) => String(n)],
    ['$numberLong', (n: Long) => `{"$numberLong": "${n}"}`],
  ])(
    'large numbers in a filter, in fields to set and in those of a new document are what was typed, as %s',
    async (_what, spelt) => {
      const w = await BulkWorld.of(database.db)
      const big = (last: number) => Long.fromString(`117852394851234611${last}`)
      await w.things.insertMany(
        [2, 3].map((last) => ({ _id: `d${last}`, phase: 'Creating', ...PARKED, customer: big(last) })),
      )
      const typed = (last: number) => `{"customer": ${spelt(big(last))}}`
      const args = ['--lifecycle', 'thing', '--filter', typed(3), '--set', typed(4), '--to-phase', 'Creating', '--yes']
      expect(await run('operations', 'run', 'redo', ...args)).toMatchObject({ code: 0 })
      expect(await run('add', 'thing', typed(5))).toMatchObject({ code: 0 })
      const all = await w.things.find({}, { promoteLongs: false, sort: { customer: 1 } }).toArray()
      expect(all.map((one) => String((one as Document)['customer']))).toEqual([big(2), big(4), big(5)].map(String))
      expect(await run('add', 'thing', '{"customer": 1e400}')).toMatchObject({
        code: 2,
        err: expect.stringContaining('expected numbers of at most 64 bits, got 1e400'),
      })
    },
  )

  test('killed in the middle, another command goes on with it', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(400, ASLEEP))
    const args = ['operations', 'run', 'wake', '--lifecycle', 'thing', '--all', '--rate', '50', '--yes']
    const killed = folder().phaselock(args, { MONGODB_URI: database.uri })
    await eventually(async () => expect(await woken(w)).toBeGreaterThanOrEqual(100), { timeoutMs: 60_000 })
    killed.killAll()
    await killed.exited
    const [begun] = (await run('operations', '--json')).json() as [{ _id: string; counts: { seen: number } }]
    expect(begun.counts.seen).toBeLessThan(400)
    const resumed = folder().phaselock(['operations', 'resume'], { MONGODB_URI: database.uri })
    await resumed.printed(/wake-\w{8}: \d+ of 400, .*; \S+ works on it, or was killed: then it goes on in \d+ s/, 'err')
    await database.db
      .collection('phaselock.operations')
      .updateMany({}, [{ $set: { lockedAt: { $subtract: ['$lockedAt', 60_000] }, rate: 100 } }])
    expect(await resumed.exited).toBe(0)
    // Of its own work it doesn't say so.
    expect(resumed.err.trim().split('\n').at(-1)).not.toContain('or was killed')
    expect(resumed.out).toMatch(/^wake-\w{8}: Done; of 400 documents 400 done, in /)
    expect(await woken(w)).toBe(400)
  })

  test('Ctrl-C leaves it for whoever resumes it; abort ends it', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(400, ASLEEP))
    const args = ['operations', 'run', 'wake', '--lifecycle', 'thing', '--all', '--rate', '50', '--yes']
    const left = folder().phaselock(args, { MONGODB_URI: database.uri })
    await left.printed(/wake-\w{8}: \d+ of 400, \d+\/s, .* left/, 'err')
    left.child.kill('SIGINT')
    expect(await left.exited).toBe(4)
    expect(left.err).toContain('go on with: phaselock operations resume')
    const [{ _id, condition }] = (await run('operations', '--json')).json() as [{ _id: string; condition: string }]
    expect(condition).toBe('Waiting')
    expect(await run('operations', 'abort', _id)).toMatchObject({
      code: 0,
      out: expect.stringContaining('asked to end'),
    })
    expect(await run('operations', 'resume', _id)).toMatchObject({
      code: 0,
      out: expect.stringContaining(': Aborted; of '),
    })
    expect(await run('operations', 'abort', _id)).toMatchObject({ code: 4 })
    expect(await woken(w)).toBeLessThan(400)
  })

  test('say what they expected', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(3, ASLEEP))
    const mistakes: [string[], number, string][] = [
      [['run', 'wkae', '--lifecycle', 'thing', '--all'], 2, "got 'wkae'; did you mean 'wake'?"],
      [['run', 'wake', '--all'], 2, "required option '--lifecycle <name>' not specified"],
      [['run', 'wake', '--lifecycle', 'thing'], 2, 'expected which documents of thing are meant, got nothing'],
      [['run', 'wake', '--lifecycle', 'thing', '--filter', '{n:'], 2, 'expected a document as JSON'],
      [
        ['run', 'wake', '--lifecycle', 'thing', '--filter', '{"$no":1}', '--yes'],
        2,
        'expected a filter that MongoDB can use',
      ],
      [['run', 'wake', '--lifecycle', 'thing', '--filter', '{"n":9}', '--yes'], 3, 'there is nothing to wake'],
      [['run', 'wake', '--lifecycle', 'thing', '--all', '--at-most', '2', '--yes'], 2, 'expected at most 2 documents'],
      [['run', 'wake', '--lifecycle', 'thing', '--all', '--rate', '0'], 2, 'expected a whole number from 1'],
      [['run', 'set-state', '--lifecycle', 'thing', '--all'], 2, '--to-state'],
      [
        ['run', 'redo', '--lifecycle', 'thing', '--all', '--to-phase', 'Created'],
        2,
        'expected a phase of thing with a handler',
      ],
      [['undo', 'wake-1'], 3, "there is no operation 'wake-1'"],
      [['show', 'wake-1'], 3, "there is no operation 'wake-1'; see: phaselock operations"],
      [['abort', 'wake-1'], 3, "there is no operation 'wake-1'"],
      [['resume', 'wake-1'], 3, "there is no operation 'wake-1'"],
    ]
    for (const [args, code, problem] of mistakes) {
      const { err, ...rest } = await run('operations', ...args)
      expect({ args, err, code: rest.code }).toEqual({ args, err: expect.stringContaining(problem), code })
    }
  })
})
