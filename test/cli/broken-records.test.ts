import { PassThrough } from 'node:stream'
import { describe, expect, jest, test } from '@jest/globals'
import { BSONRegExp, type Collection, type Document } from 'mongodb'
import { Output } from '../../src/cli/output.js'
import { runCli } from '../../src/cli/run.js'
import { useDatabase } from '../support/database.js'
import { THINGS } from './cli-process.js'

jest.setTimeout(240_000)

const FOREIGN = new BSONRegExp('(?P<id>\\d+)')
const FAR = new Date(8.64e15)

/** Besides the documents of lifecycles (broken-documents.test.ts): one odd record is told in its place, and the others too. */
describe('the CLI on records that others have broken', () => {
  const database = useDatabase()
  const collection = (name: string) =>
    database.db.collection(name) as unknown as Collection<{ _id: unknown } & Document>

  async function run(...args: string[]) {
    const [out, err] = [new PassThrough(), new PassThrough()]
    const env = { ...process.env, MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS }
    const code = await runCli(args, { env, output: new Output(out, err) })
    const [printed, problems] = [out.end(), err.end()].map((stream) => String(stream.read() ?? ''))
    expect(printed! + problems!).not.toMatch(/\[object|^\s+at .*:\d+:\d+/m)
    return { code, out: printed!, err: problems! }
  }

  test.each<[string, Document, string]>([
    [
      'an _id that is a number',
      { _id: 5, collection: 'Thing' },
      'entry 5 in phaselock.lifecycles  its _id is a number',
    ],
    ['nothing but an _id', { _id: 'x' }, 'entry x in phaselock.lifecycles  its collection is missing'],
    ['a collection that is a number', { _id: 'x', collection: 5 }, 'its collection is a number'],
    ["a collection that there can't be", { _id: 'x', collection: '$bad' }, 'its collection is not a name'],
    ['a collection that nobody may write', { _id: 'x', collection: 'system.views' }, 'its collection is not a name'],
    ['an empty collection', { _id: 'x', collection: '' }, 'its collection is empty'],
    [
      'a regular expression of another dialect',
      { _id: 'x', collection: FOREIGN },
      'its collection is a regular expression',
    ],
    ['phases that are no array', { _id: 'x', collection: 'Thing', phases: 5, handledAt: 'x' }, 'lifecycle x'],
  ])('an entry of phaselock.lifecycles with %s: check tells it, and checks the rest', async (_name, entry, told) => {
    await collection('phaselock.lifecycles').insertOne(entry as never)
    await collection('Thing').insertOne({ _id: 'lost', phase: 'Nowhere' })
    for (const repair of [[], ['--repair']]) {
      const { code, out } = await run('check', ...repair)
      expect(code).toBe(5)
      expect(out.replaceAll(/: /g, '  ')).toContain(told)
      expect(out).toContain("1 document in the phase 'Nowhere'")
    }
  })

  test('an _id that holds a regular expression of another dialect: check names it among the others', async () => {
    await collection('Thing').insertMany([
      { _id: { r: FOREIGN }, phase: 5, updatedAt: 'x' },
      { _id: { r: FOREIGN, n: 1 }, phase: 'Creating', lockedAt: FOREIGN },
      { _id: { r: FOREIGN, n: 2 }, phase: 'Creating', lockedBy: 'x~1#1.1', lockedAt: new Date(Date.now() + 1e9) },
      { _id: 'good', phase: 5 },
    ])
    const { out, err } = await run('check')
    expect(err).not.toContain('Invalid regular expression')
    expect(out).toMatch(/2 documents with phase of type int \(.*\(\?P<id>.*good\)/)
    expect(out).toMatch(/1 document with updatedAt of type string/)
    expect(out).toMatch(/1 document with a lockedAt that never comes due/)
    expect(out).toMatch(/1 document held by leases that begin up to/)
  })

  test('a phase of 5,000 characters does not push the other rows apart', async () => {
    await collection('Thing').createIndex({ phase: 1, lockedAt: 1, updatedAt: 1 }) // as a replica would
    await collection('Thing').insertMany([
      { _id: 'a', phase: 'x'.repeat(5_000) },
      { _id: 'b', phase: 'Creating' },
    ])
    for (const args of [['list'], ['list', 'thing']]) {
      const { code, out } = await run(...args)
      expect(code).toBe(0)
      expect(out).toContain(`${'x'.repeat(97)}...`)
      const widths = out.split('\n').map((line) => line.length)
      expect(widths.filter((width) => width > 200)).toEqual([])
    }
  })

  test('schedules whose fields are of other types are listed as they are', async () => {
    await collection('schedules').insertMany([
      { _id: 'good', phase: 'Active', task: 't', cron: '0 0 * * *' },
      { _id: 'odd', phase: 5, task: { a: 1 }, cron: { b: 1 }, timezone: 5, broken: { c: 1 } },
      { _id: 'odder', phase: ['Active'], interval: { b: 1 }, paused: { until: 5, by: { d: 1 }, reason: ['e'] } },
      { _id: { f: 1 }, phase: 'Active', task: 't', at: FAR, nextRunAt: FAR, lastRunAt: FAR },
    ])
    await collection('runs').insertOne({ _id: 'r', schedule: 'odd', phase: 7, durationMs: 'x', error: { message: 5 } })
    const { code, out } = await run('schedules')
    expect(code).toBe(0)
    expect(out).toMatch(/^good +t +0 0 \* \* \* +Active/m)
    expect(out).toMatch(/^odd +\{"a":1\} +\{"b":1\} 5 +5 +- +- +7: 5$/m)
    expect(out).toContain('odd is broken: {"c":1}\n')
    expect(out).toMatch(/^odder +- +every \{"b":1\} +\["Active"\]/m)
    expect(out).toContain('odder is paused until - by {"d":1}: ["e"]\n')
    expect(out).toMatch(/^\{"f":1\} +t +once \+275760-09-13T00:00:00Z +Active/m)
    expect(await run('schedules', '--json')).toMatchObject({ code: 0 })
  })

  test('runs whose fields are of other types are listed as they are', async () => {
    const run1 = { schedule: 's', trigger: 'schedule', phase: 'Failed' }
    await collection('runs').insertMany([
      { ...run1, _id: 'a', attempt: 1, scheduledFor: new Date(), error: { name: 'E', message: 'broke' } },
      { ...run1, _id: 'b', scheduledFor: new Date(1), error: { name: {}, message: 5 }, log: 5, by: 5, counters: 'x' },
      {
        ...run1,
        _id: 'c',
        scheduledFor: 'x',
        error: 5,
        trigger: 5,
        requestedBy: {},
        attempt: {},
        lost: {},
        log: [null, 5],
      },
      { ...run1, _id: 'd', scheduledFor: [new Date()], reason: {}, counters: { n: {} } },
      { ...run1, _id: 'e', phase: 'Completed', scheduledFor: FAR, durationMs: 'x', counters: { n: 1 } },
      { ...run1, _id: 'f', phase: {}, scheduledFor: new Date(-8.64e15) },
    ])
    const { code, out, err } = await run('runs', 's', '--lines')
    expect({ code, err }).toEqual({ code: 0, err: '' })
    expect(out).toMatch(/ schedule +1 +- +Failed: broke$/m)
    expect(out).toMatch(/ schedule +1 +5 +Failed: 5/m)
    expect(out).toMatch(/5 \(\{\}\) +\{\}\+\{\} lost +- +Failed/m)
    expect(out).toContain('6 runs: Completed 1, Failed 4')
    expect(await run('runs', 's', '--json')).toMatchObject({ code: 0 })
  })

  test('locks whose fields are of other types are listed, and can be freed', async () => {
    const held = { lockedAt: new Date(), lockUntil: new Date(Date.now() + 1e7) }
    await collection('shedLock').insertMany([
      { ...held, _id: 'good', lockedBy: 'me' },
      { ...held, _id: 'number', lockedBy: 5 },
      { ...held, _id: 'object', lockedBy: {}, fence: 'x' },
      { ...held, _id: 'regex', lockedBy: FOREIGN },
      { ...held, _id: { a: 1 }, lockedBy: 'me' },
      { _id: 'dates', lockedBy: 'me', lockedAt: FAR, lockUntil: FAR },
      { _id: 'free', lockedBy: 5 },
    ])
    for (const all of [[], ['--all']]) {
      const { code, out, err } = await run('locks', ...all)
      expect({ code, err }).toEqual({ code: 0, err: '' })
      expect(out).toMatch(/^good +me +\d+ m?s ago/m)
      for (const name of ['number', 'object', 'regex'])
        expect(out).toMatch(new RegExp(`^${name} +- +\\d+ m?s ago +in .* +-$`, 'm'))
      expect(out).toMatch(/^\{"a":1\} +me/m)
      expect(out).toMatch(/^dates +me/m)
    }
    for (const name of ['number', 'object', 'regex'])
      expect(await run('locks', 'release', name, '--yes')).toMatchObject({
        code: 0,
        out: expect.stringMatching(/freed/),
      })
  })
})
