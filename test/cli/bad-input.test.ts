import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, jest, test } from '@jest/globals'
import { useDatabase } from '../support/database.js'
import { ROOT, THINGS, useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('what is typed wrong is refused, with what was expected', () => {
  const folder = useCliFolder()
  // Nothing here gets as far as a database.
  const env = { MONGODB_URI: 'mongodb://127.0.0.1:1/x', POD_NAMESPACE: '' }

  test.each([
    [['lst'], /^error: unknown command 'lst'\n\(Did you mean list\?\)\n$/],
    [['limits', 'st'], /^error: unknown command 'limits st'\n\(Did you mean set\?\)\n$/],
    [['lifecycles', 'forgt', 'x'], /^error: unknown command 'lifecycles forgt'\n\(Did you mean forget\?\)\n$/],
    [['list', '--parkd'], /^error: unknown option '--parkd'\n\(Did you mean --parked\?\)\n$/],
    [['xyzzy'], /^error: unknown command 'xyzzy'\n\(see --help\)\n$/],
    [['list', '--pased', 'x'], /unknown option '--pased'/],
    [['list', '--limit', '0'], /expected a whole number from 1 to 10000/],
    [['completion', 'csh'], /value 'csh' is invalid .*Allowed choices are bash, zsh, fish/],
    [['show'], /missing required argument 'id'/],
    [['show', 'a', 'b'], /too many arguments/],
    [['add', 'thing', '{"a": }'], /expected a document as JSON, such as '\{"name": "x"\}', got \{"a": \} .*quote it/],
    [['add', 'thing', '[1]'], /expected a document as JSON, such as .*, got \[1\]/],
    [['add', 'thing', '"x"'], /expected a document as JSON, such as .*, got "x"/],
    [['remove', 'a'], /expected --yes/],
    [['start', '--http', '70000'], /--http: expected a whole number from 0 to 65535, got '70000'/],
    [['start', '--grace', '10'], /--grace: expected a duration from 0s to 1h, .* add the unit \('10s' is 10 s\)/],
    [
      ['start', '--lifecycles', THINGS, '--early-recovery', 'on'],
      /^phaselock: early recovery: expected POD_NAME and POD_NAMESPACE/,
    ],
    [['list', '--log', 'xml'], /--log: expected one of json, pretty, got 'xml'/],
    [['list', '--lifecycles', './nope.js'], /--lifecycles \.\/nope\.js: .*there is no file/],
    [['list', '--lifecycles', '.'], /--lifecycles \.: .* is a folder; name a file in it/],
    [['list', '--lifecycles', 'no-such-package'], /neither a file .* nor a package of that name/],
    [['list', '--uri', 'mongo://x'], /expected a connection string such as mongodb:.* in the uri option/],
  ])('phaselock %j', async (args, problem) => {
    const result = await folder().run(args, env)
    expect(result).toMatchObject({ code: 2, out: '' })
    expect(result.err).toMatch(problem)
    expect(result.err).not.toMatch(/^\s+at /m)
  })

  test('unknown settings and values out of range, all at once', async () => {
    const settings = { PHASELOCK_GRACE: 'soon', PHASELOCK_HTPP: '1', PHASELOCK_PORT: 'tcp://10.0.0.7:80' }
    const result = await folder().run(['start'], { ...env, ...settings })
    expect(result).toMatchObject({ code: 2, out: '' })
    expect(result.err).toMatch(
      /^phaselock: 2 settings can't be used:\n {2}- PHASELOCK_HTPP: .*did you mean 'PHASELOCK_HTTP'/,
    )
    expect(result.err).toContain('PHASELOCK_GRACE: expected a duration')
  })

  test('no command: the help on standard error, exit code 2; asked for: on standard output, 0', async () => {
    const [none, help, version, commandHelp] = await Promise.all([
      folder().run([]),
      folder().run(['--help']),
      folder().run(['--version']),
      folder().run(['help', 'show']),
    ])
    expect(none).toMatchObject({ code: 2, out: '' })
    expect(none.err).toContain('Usage: phaselock')
    expect(help).toMatchObject({ code: 0, err: '' })
    expect(help.out).toMatch(/Exit codes:\n {2}0 /)
    expect(version.out).toMatch(/^\d+\.\d+\.\d+\n$/)
    expect(commandHelp.out).toMatch(/Examples:\n {2}\$ phaselock show /)
  })

  test('a Node that is too old is told so before anything else is loaded', async () => {
    const main = pathToFileURL(join(ROOT, 'dist/cli/main.js')).href
    const program = `Object.defineProperty(process.versions, 'node', { value: '20.19.1' }); await import('${main}')`
    const old = folder().start(process.execPath, ['--input-type=module', '-e', program])
    expect(await old.exited).toBe(1)
    expect(old.err).toMatch(/^phaselock: expected Node\.js 22\.19 or later, got 20\.19\.1; install a newer one/)
  })

  test('a reader that closes the pipe early is no failure', async () => {
    const command = `"${process.execPath}" "${join(ROOT, 'dist/cli/main.js')}" --help | head -c 1 > /dev/null`
    const piped = folder().start('/bin/bash', ['-o', 'pipefail', '-c', command])
    expect(await piped.exited).toBe(0)
    expect(piped.err).toBe('')
  })

  test('a server that refuses: exit code 1, one message without the password, the stack for --log-level debug only', async () => {
    const args = ['list', '--uri', 'mongodb://me:secret@127.0.0.1:1/x', '--connect-timeout', '3s']
    const [plain, debug, json] = await Promise.all([
      folder().run(args),
      folder().run([...args, '--log-level', 'debug']),
      folder().run([...args, '--json']),
    ])
    expect(plain).toMatchObject({ code: 1, out: '' })
    expect(plain.err).toMatch(
      /^phaselock: expected a MongoDB server at mongodb:\/\/me:\*\*\*@127\.0\.0\.1:1\/x, got: .*ECONNREFUSED/,
    )
    expect(plain.err).not.toMatch(/secret|^\s+at /m)
    expect(debug.err).toMatch(/^\s+at /m)
    expect(debug.err).not.toContain('secret')
    expect(JSON.parse(json.err)).toMatchObject({ error: { name: 'DatabaseUnreachable', exitCode: 1 } })
  })
})

describe('what the database or a module makes of it', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (args: readonly string[], env = {}) =>
    folder().run(args, { MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS, ...env })

  test('names that no lifecycle knows', async () => {
    await database.db.collection('Thing').insertOne({ phase: 'Creating' })
    const [lifecycle, phase, listed, state, reserved, due] = await Promise.all([
      run(['add', 'thng']),
      run(['add', 'thing', '{"phase": "Creatng"}']),
      run(['list', 'thing', '--phase', 'Creatng']),
      run(['add', 'thing', '{"state": "deleted"}']),
      run(['add', 'thing', '{"lockedBy": "me", "fence": 1}']),
      run(['add', 'thing', '{"lockedAt": 1}']),
    ])
    expect(lifecycle.err).toMatch(
      /expected a lifecycle \(thing\), got 'thng'; did you mean 'thing'\? a replica registers/,
    )
    expect(phase.err).toMatch(/expected a phase of thing \(Creating, .*\), got "Creatng"; nothing was inserted/)
    expect(listed.err).toMatch(/expected a phase of thing .*, got 'Creatng'; did you mean 'Creating'\?/)
    expect(state.err).toMatch(/expected a state that a rule of thing names \(Deleted\), got "deleted"; did you mean/)
    expect(reserved.err).toMatch(/expected the owner's own fields, got lockedBy, fence: Phaselock writes these/)
    expect(due.err).toMatch(
      /expected lockedAt to say when it is due, as a date such as .*, got 1; leave it out to make it due at once/,
    )
    for (const { code, out } of [lifecycle, phase, listed, state, reserved, due])
      expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(await database.db.collection('Thing').countDocuments()).toBe(1)
  })

  test('modules that are no list of lifecycles, or hold one that can not work', async () => {
    const dist = join(ROOT, 'dist/index.js')
    const spec = "name: 'x', collection: 'X'"
    const modules: [string, RegExp, number][] = [
      ['export const a = 1', /got no default export/, 2],
      ['export default []', /got an empty array/, 2],
      ['export default () => 7', /got a number/, 2],
      ['export default [{ a: 1 }]', /element 0 is an object with a/, 2],
      [
        `import { lifecycleOf } from '${dist}'
        export default [lifecycleOf().define({ ${spec}, phases: { A: { rest: true } } })]`,
        /element 0 is .*, a definition without handlers: call its handle\(\{\.\.\.\}\)/,
        2,
      ],
      [
        `import { lifecycleOf } from '${dist}'
        export default [lifecycleOf().define({ ${spec}, lockTimout: '3s', phases: { A: { next: ['B'] }, C: { rest: true } } })]`,
        /lifecycle 'x' can't work:\n {2}- phase 'A'\.next names an unknown phase 'B'.*\n {2}- unknown setting 'lockTimout'/,
        1,
      ],
    ]
    await Promise.all(
      modules.map(async ([text, problem, code], i) => {
        await writeFile(join(folder().path, `m${i}.mjs`), text)
        const result = await run(['start', '--lifecycles', `./m${i}.mjs`])
        expect(result.err).toMatch(problem)
        expect(result).toMatchObject({ code, out: '' })
        expect(result.err).not.toMatch(/^\s+at /m)
      }),
    )
  })

  test("an error of the module's own keeps its stack", async () => {
    const modules: [string, string, RegExp][] = [
      ['throws.mjs', "throw new TypeError('mine')", /it throws:\nTypeError: mine\n\s+at .*throws\.mjs:1/],
      ['makes.mjs', "export default () => { throw 'a text' }", /it throws:\na text\n$/],
      ['half.mjs', 'export default [', /it throws \(node --check \.\/half\.mjs shows where\):\nSyntaxError/],
    ]
    await Promise.all(
      modules.map(async ([name, text, problem]) => {
        await writeFile(join(folder().path, name), text)
        const result = await run(['list', '--lifecycles', `./${name}`])
        expect(result.code).toBe(1)
        expect(result.err).toMatch(
          new RegExp(`^phaselock: --lifecycles \\./${name}: expected a module that can be loaded, but it throws`),
        )
        expect(result.err).toMatch(problem)
      }),
    )
  })

  test('a port that is in use', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    await new Promise((resolve) => server.once('listening', resolve))
    const { port } = server.address() as { port: number }
    const result = await run(['start', '--http', `${port}`, '--http-host', '127.0.0.1'])
    server.close()
    expect(result.code).toBe(1)
    expect(result.err).toContain(`expected to listen on 127.0.0.1:${port}, got a port that is in use; choose another`)
    expect(result.err).not.toMatch(/^\s+at /m)
  })
})
