import { mkdir, writeFile } from 'node:fs/promises'
import { PassThrough, Readable } from 'node:stream'
import { describe, expect, test } from '@jest/globals'
import { BSON } from 'mongodb'
import { noteRefusal } from '../../packages/state/src/config/versions.js'
import { Output } from '../../src/cli/output.js'
import { runCli } from '../../src/cli/run.js'
import { useDatabase } from '../support/database.js'
import { THINGS, useCliFolder } from './cli-process.js'

describe('phaselock config', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = async (...args: string[]) => {
    const [out, err] = [new PassThrough(), new PassThrough()]
    const context = { env: { MONGODB_URI: database.uri }, stdin: Readable.from(['']), cwd: folder().path }
    const code = await runCli(args, { ...context, output: new Output(out, err) })
    const [printed, problems] = [out.end(), err.end()].map((stream) => String((stream as PassThrough).read() ?? ''))
    return { code, out: printed!, err: problems!, json: () => BSON.EJSON.parse(printed!) as never }
  }

  test('stores, shows, lists and rolls back versions; the audit has an entry of each change', async () => {
    expect((await run('config')).out).toBe(
      'no configuration is stored for the environment default; each app uses its initial values\n',
    )
    const set = await run('config', 'set', 'mail', '{"host": "a"}', '--by', 'ana', '--reason', 'the relay')
    expect(set.out).toBe('mail: version 1 is stored; see whether all accept it with: phaselock config\n')
    expect((await run('config', 'set', 'mail', '{"host": "b"}', '--by', 'bo', '--expect-version', '1')).code).toBe(0)
    const stale = await run('config', 'set', 'mail', '{"host": "c"}', '--by', 'cy', '--expect-version', '1')
    expect(stale).toMatchObject({
      code: 4,
      err: expect.stringMatching(/mail: expected version 1 to be stored, got version 2 by bo/),
    })

    expect((await run('config', 'get', 'mail')).out).toMatch(/^\{"host":"b"\}\nversion 2 of \S+ by bo\n$/)
    expect((await run('config', 'get', 'mail', '1', '--json')).json()).toMatchObject({
      name: 'mail',
      version: 1,
      value: { host: 'a' },
      by: 'ana',
      reason: 'the relay',
    })
    expect((await run('config', 'rollback', 'mail', '--by', 'cy')).out).toBe(
      'mail: version 3 is stored, with the value of version 1\n',
    )
    const [head, ...rows] = (await run('config', 'history', 'mail')).out.trim().split('\n')
    expect(head).toMatch(/^VERSION +AT +BY +REASON +VALUE$/)
    expect(rows.map((row) => row.split(/ {2,}/).filter((_, i) => i !== 1))).toEqual([
      ['3', 'cy', 'back to version 1', '{"host":"a"}'],
      ['2', 'bo', '-', '{"host":"b"}'],
      ['1', 'ana', 'the relay', '{"host":"a"}'],
    ])
    const audit = (await run('audit', '--json')).out
    expect(audit).toContain('"action":"config rollback"')
    expect(audit).toContain('"target":"config mail"')
  })

  test('shows which process refuses a value, and check finds it', async () => {
    await run('config', 'set', 'mail', '{"host": 1}')
    const place = { db: database.db, environment: 'default' }
    await noteRefusal(place, 'mail', { by: 'api-1', version: 1, issues: ['host: expected text'] })
    const { out } = await run('config')
    expect(out).toMatch(
      /^NAME +VERSION +AT +BY +REASON +REFUSED BY\nmail +1 .* api-1\nmail: api-1 refuses version 1: host: expected text\n$/,
    )
    const order = { name: 'order', collection: 'Order', phases: { Sent: { rest: true } } }
    await database.db.collection<{ _id: string }>('phaselock.lifecycles').deleteMany({})
    const module = `${folder().path}/lifecycles.mjs`
    await writeFile(
      module,
      `import { lifecycleOf } from 'phaselock'\nexport default [lifecycleOf().define(${JSON.stringify(order)}).handle({})]\n`,
    )
    const check = await run('check', '--lifecycles', module)
    expect(check.out).toMatch(/!! +state +config default:mail: api-1 refuses version 1 and works with an older one/)
  })

  test.each([
    ["can't be loaded", "throw new Error('boom')", "phaselock-state can't be loaded: boom"],
    ['has a check that throws', "export const check = async () => { throw new Error('boom') }", 'boom'],
  ])('a package that %s costs no other command anything, nor the other findings', async (_what, code, problem) => {
    // A process of its own: Jest resolves packages in its own way.
    const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })
    const installed = `${folder().path}/node_modules/phaselock-state`
    await mkdir(installed, { recursive: true })
    await writeFile(
      `${installed}/package.json`,
      '{"name": "phaselock-state", "type": "module", "exports": {"./cli": "./cli.js"}}',
    )
    await writeFile(`${installed}/cli.js`, code)
    const check = await run('check', '--lifecycles', THINGS)
    expect(check.code).toBe(5)
    expect(check.out).toMatch(/^ok {2}clocks +/m)
    expect(check.out.split('\n').filter((line) => /^\S+ +state /.test(line))).toEqual([
      expect.stringMatching(new RegExp(`^!! +state +its check: ${problem}$`)),
    ])
    const list = await run('list', 'config', '--lifecycles', THINGS)
    expect(list.err).not.toContain('phaselock-state')
    expect(list.code).toBe((await run('list', 'another', '--lifecycles', THINGS)).code)
    expect(await run('config', '--json')).toMatchObject({ code: 1, err: expect.stringContaining('"PackageUnusable"') })
  })

  test('says what is wrong with a command line', async () => {
    const bad: [string[], number, string][] = [
      [['get', 'mail'], 3, 'expected the name of a stored configuration of the environment default, got mail'],
      [['set', 'mail', '{bad'], 2, 'expected a value as JSON'],
      [['set', 'm m', '1'], 2, "expected a configuration's name"],
      [['set', 'mail'], 2, "missing required argument 'value'"],
      [['set', 'mail', '1', '--expect-version', 'x'], 2, '--expect-version: expected a version'],
      [['histori'], 2, 'Did you mean history?'],
      [['--environment', 'a b'], 2, '--environment: expected'],
    ]
    for (const [args, code, problem] of bad)
      expect(await run('config', ...args)).toMatchObject({ code, err: expect.stringContaining(problem) })
  })
})
