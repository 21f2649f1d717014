import { PassThrough } from 'node:stream'
import { afterEach, describe, expect, jest, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { Output } from '../../src/cli/output.js'
import { buildProgram } from '../../src/cli/program.js'
import type { Replica } from '../../src/index.js'
import { documentRows } from '../../src/operations/causes/document-rows.js'
import { censusOf, groupOf } from '../operations/causes/census.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, thingWith } from '../support/thing.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('phaselock causes', () => {
  let replica: Replica | undefined
  afterEach(() => replica?.stop())
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })

  test('lists what needs a person, shows one, and keeps who deals with it', async () => {
    replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
      // The census is the test's own.
      { sweepEvery: '0s' },
    )
    await replica.start()
    expect((await run('causes')).out).toBe(
      'no census of thing: no replica has taken one yet: none runs it, it has just started, or it is of an older version\nnothing that is known needs a person: throughput unknown; documents not counted\n',
    )
    const now = new Date()
    const { _id, ...found } = censusOf('thing', now, {
      parks: [groupOf({ documents: { n: 12 }, oldest: now, firstSeen: now, newest: now })],
    })
    await database.db.collection<Document & { _id: string }>('phaselock.census').insertOne({ _id, ...found })
    const all = (await run('causes', '--json')).json() as { rows: { id: string; kind: string }[] }
    expect(all).toMatchObject({ needsYou: 1, noCensus: [], rows: [{ kind: 'park', documents: { n: 12 } }] })
    const { id } = all.rows[0]!
    const listed = await run('causes')
    expect(listed.out).toMatch(new RegExp(`^${id}  park +thing +12 .* parked in Packing: no paper$`, 'm'))
    expect(listed.out).toMatch(/^1 needs a person; to see what helps: phaselock causes <cause>$/m)
    const one = await run('causes', id)
    expect(one.out).toContain(`${id}: thing: 12 documents parked in Packing: no paper\n`)
    expect(one.out).toMatch(/^ {2}\d.* ago {2}\S+~\w+ started with Phaselock .*; what ran before is unknown$/m)
    expect(one.out).toContain(
      `to act: phaselock operations run unpark --lifecycle thing --cause c0ffee000000 --for ${id}\n`,
    )
    expect(await run('causes', 'ack', id, '--until', '4h', '--note', 'on my way', '--by', 'ana')).toMatchObject({
      ...{ code: 0, out: expect.stringMatching(new RegExp(`^${id}: ana has it until \\d{4}-.*Z\\n$`)) },
    })
    expect((await run('causes')).out).toMatch(
      /no paper \[ana has it for 3 h 5\d min more: on my way\]\n\n0 need a person, 1 acknowledged;/,
    )
    expect(await run('causes', 'ack', id, '--until', '1h', '--by', 'ben')).toMatchObject({
      ...{
        code: 4,
        err: expect.stringMatching(/ana has cause \w+ until .*: on my way; to take it over: phaselock causes unack/),
      },
    })
    expect((await run('causes', 'unack', id, '--by', 'ben')).out).toBe(`${id}: ana no longer has it\n`)
    expect(await run('causes', 'unack', id)).toMatchObject({ code: 3 })
    expect(await run('causes', 'ffffffffffff')).toMatchObject({ code: 3 })
    expect(await run('causes', 'ack', id, '--until', 'soon')).toMatchObject({ code: 2 })
    expect(await run('causes', 'ack', id)).toMatchObject({ code: 2 })
    const audit = (await run('audit', '--json')).json() as { action: string }[]
    expect(audit.map(({ action }) => action)).toEqual(['causes unack', 'causes ack', 'causes ack'])
  })
})

test('each action is a command that there is, with options that it has', async () => {
  const output = new Output(new PassThrough(), new PassThrough())
  const program = await buildProgram({ env: {}, cwd: '/', stdin: new PassThrough(), output })
  const now = new Date()
  const overdue = (['paused', 'limit', 'busy', 'unhandled'] as const).map((why) => ({
    ...{ phase: 'Packing', documents: { n: 1 }, why, oldest: now, ids: [] },
  }))
  const census = censusOf('order', now, {
    ...{ parks: [groupOf()], errors: [groupOf({ documents: { n: 3 } })], overdue },
    loops: [{ phase: 'Packing', documents: { n: 1 }, ids: [] }],
    broken: [{ field: 'lockedAt', found: 'a string', documents: { n: 1 }, ids: [] }],
    callbacks: { givenUp: { n: 1 }, ids: ['a'] },
    questions: { documents: { n: 1 }, nearestDeadline: now, ids: ['a'] },
  })
  const rows = documentRows({ census, flow: undefined, pauses: [], now })
  expect(rows).toHaveLength(10)
  for (const { action } of rows) {
    const { command, preview } = action!('3f9a0c1b22d4')
    for (const text of [command, preview]) {
      const [, ...words] = text.split(' ')
      let at = program
      for (const word of words) at = at.commands.find((one) => one.name() === word) ?? at
      expect({ text, at: at.name() }).not.toMatchObject({ at: 'phaselock' })
      const flags = words.filter((word) => word.startsWith('--'))
      const known = at.options.map(({ long }) => long)
      expect({ text, unknown: flags.filter((flag) => !known.includes(flag)) }).toEqual({ text, unknown: [] })
    }
  }
})
