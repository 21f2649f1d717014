import { PassThrough } from 'node:stream'
import { describe, expect, jest, test } from '@jest/globals'
import { BSONRegExp, type Collection, type Document, Long } from 'mongodb'
import { Output } from '../../src/cli/output.js'
import { runCli } from '../../src/cli/run.js'
import { useDatabase } from '../support/database.js'
import { malformedBinary, malformedText, useMalformed } from '../support/malformed.js'
import { THINGS } from './cli-process.js'

jest.setTimeout(240_000)

const FOREIGN = new BSONRegExp('(?P<id>\\d+)', 'i')
const ESCAPE = '\u001b[2J'

/** One document's fault stays its own: what is asked about others is answered, and what is asked about it too. */
describe('the CLI on documents that others have broken', () => {
  const database = useDatabase()
  const malformed = useMalformed(database)
  const things = () => database.db.collection('Thing') as unknown as Collection<{ _id: unknown } & Document>

  async function run(...args: string[]) {
    const [out, err] = [new PassThrough(), new PassThrough()]
    const env = { ...process.env, MONGODB_URI: malformed.uri, PHASELOCK_LIFECYCLES: THINGS }
    const code = await runCli(args, { env, output: new Output(out, err) })
    const [printed, problems] = [out.end(), err.end()].map((stream) => String(stream.read() ?? ''))
    return { code, out: printed!, err: problems! }
  }

  const broken: Record<string, Document> = {
    'a regular expression in phase': { phase: FOREIGN },
    'one in lockedBy': { lockedBy: FOREIGN, lockedAt: new Date(0) },
    'one in progress': {
      progress: { waitingFor: FOREIGN, error: { message: FOREIGN }, history: [FOREIGN, { at: FOREIGN }] },
    },
    'binary that can’t be read': { own: malformedBinary() },
    'such binary in lockedAt': { lockedAt: malformedBinary() },
    'such binary in lockedBy': { lockedBy: malformedBinary() },
    'such binary in phase': { phase: malformedBinary() },
    'such binary in progress': { progress: { since: malformedBinary(), history: [malformedBinary()] } },
    'text that is no UTF-8': { own: malformedText },
    'such text in phase': { phase: malformedText },
    'a history of odd entries': {
      progress: {
        history: [null, 'x', 5, { at: 'x', outcome: 5, step: {} }, { at: new Date(8.64e15) }],
        step: { a: 1 },
      },
    },
    'an array as its phase': { phase: ['Creating'] },
    'a field __proto__': JSON.parse('{"__proto__": {"phase": "Created"}, "progress": {"__proto__": {"step": "x"}}}'),
    'escape sequences': { phase: `Crea${ESCAPE}ting`, state: `x\n${ESCAPE}`, lockedBy: ESCAPE, lockedAt: new Date() },
  }

  test.each(Object.keys(broken))('%s', async (name) => {
    const document = Object.assign({ _id: 'bad', phase: 'Creating' }, { ...broken[name] })
    await things().createIndex({ phase: 1, lockedAt: 1, updatedAt: 1 }) // as a replica would
    await things().insertOne(document)
    await things().insertOne({ _id: 'good', phase: 'Creating' })

    const all = await run('list', 'thing')
    expect(all).toMatchObject({ code: 0, err: '' })
    expect(all.out).toMatch(/^good +Creating +- +due$/m)
    // The index has several entries of an array, so that no page could end with it.
    expect(all.out).toMatch(
      name === 'an array as its phase' ? /^\(left out: documents of thing whose phase/m : /^bad /m,
    )
    const counts = await run('list')
    expect(counts).toMatchObject({ code: 0, err: '' })
    expect(counts.out).toMatch(/^thing +Creating +[12] /m)
    for (const json of [[], ['--json']]) {
      const shown = await run('show', 'bad', ...json)
      expect(shown).toMatchObject({ code: 0, err: '' })
      expect(shown.out).toContain('bad')
    }
    const checked = await run('check')
    expect(checked.code).toBe(5)
    expect(checked.out).toMatch(/^(ok |!! ) *clocks/m)
    const commands = [
      ['wake', 'bad'],
      ['unpark', 'bad'],
      ['set-state', 'bad', 'Deleted'],
      ['wake', 'good'],
      ['set-state', 'good', 'Deleted'],
      ['remove', 'bad', '--yes', '--force'],
    ]
    const results = []
    for (const command of commands) results.push(await run(...command))
    expect(results.slice(3).map(({ code }) => code)).toEqual([0, 0, 0])
    for (const { code, out, err } of [all, counts, checked, ...results]) {
      expect([0, 4, 5]).toContain(code)
      expect(out + err).not.toMatch(/\[object|^\s+at .*:\d+:\d+/m)
      expect(out + err).not.toContain(ESCAPE)
    }
  })

  test('whole numbers beyond 2^53 keep their digits in --json', async () => {
    const numbers = [Long.fromString('-9007199254740993'), Long.fromNumber(5)]
    await things().insertOne({ _id: Long.MAX_VALUE, phase: 'Creating', at: { numbers } } as never)
    const { out } = await run('show', '{"$numberLong": "9223372036854775807"}', '--json')
    expect(out).toContain('"_id":{"$numberLong":"9223372036854775807"}')
    expect(out).toContain('"at":{"numbers":[{"$numberLong":"-9007199254740993"},5]}')
  })

  test.each([
    [
      'a Long that no number is as large as',
      Long.fromString('9223372036854775807'),
      '{"$numberLong": "9223372036854775807"}',
    ],
    ['null', null, 'null'],
    ['false', false, 'false'],
    [
      'a regular expression inside',
      { a: FOREIGN },
      '{"a": {"$regularExpression": {"pattern": "(?P<id>\\\\d+)", "options": "i"}}}',
    ],
  ])('an _id that is %s is found', async (_name, _id, typed) => {
    // The driver gives a null an ObjectId when it inserts.
    if (_id === null)
      await things().updateOne({ _id: null } as never, { $set: { phase: 'Creating' } }, { upsert: true })
    else await things().insertOne({ _id, phase: 'Creating' })
    const shown = await run('show', typed)
    expect(shown).toMatchObject({ code: 0, err: '' })
    expect(await run('remove', typed, '--yes')).toMatchObject({ code: 0, err: '' })
    expect(await things().countDocuments()).toBe(0)
  })
})
