import { readdir } from 'node:fs/promises'
import { PassThrough, Readable } from 'node:stream'
import { expect, test } from '@jest/globals'
import { Output } from '../../src/cli/output.js'
import { runCli } from '../../src/cli/run.js'
import { THINGS, useCliFolder } from './cli-process.js'

const folder = useCliFolder()

/** What it printed as an error, in an empty folder without MONGODB_URI: nothing may be created there. */
async function refusal(args: readonly string[], env: NodeJS.ProcessEnv = {}, expected = 1): Promise<string> {
  const [out, err] = [new PassThrough(), new PassThrough()]
  const { HOME, PATH, XDG_CACHE_HOME } = process.env
  const context = { env: { HOME, PATH, XDG_CACHE_HOME, ...env }, stdin: Readable.from(['']), cwd: folder().path }
  const code = await runCli(args, { ...context, output: new Output(out, err) })
  expect([code, await readdir(folder().path)]).toEqual([expected, []])
  return String(err.end().read())
}

test.each([
  ['list'],
  ['show', 'shop'],
  ['check'],
  ['schedules'],
  ['runs', 'nightly'],
  ['locks'],
  ['regions'],
  ['orphans'],
  ['replicas'],
  ['count'],
  // Nobody can have registered a lifecycle there.
  ['add', 'order'],
  ['wake', 'shop'],
  ['unpark', 'shop'],
])('phaselock %s starts no local database, and says that MONGODB_URI is missing', async (...args) => {
  const said = await refusal(args)
  expect(said).toContain('phaselock: expected MONGODB_URI to name a MongoDB server, but it is not set')
  expect(said).toContain(`no local database is running in ${folder().path}/.phaselock, and this command starts none`)
})

test.each([
  ['in a pod', { KUBERNETES_SERVICE_HOST: '10.0.0.1' }],
  ['in production', { NODE_ENV: 'production' }],
])('%s nothing starts a local database', async (_where, env) => {
  for (const args of [
    ['start', '--lifecycles', THINGS],
    ['add', 'api-gateway', '{"_id":"shop"}'],
  ]) {
    expect(await refusal(args, env)).toMatch(
      /expected MONGODB_URI to name a MongoDB server, but it is not set; a local database is for development/,
    )
  }
})

test.each([[['start']], [['start', '--http', '9400']], [['start', '--workers', '2']]])(
  'phaselock %j without lifecycles is refused, before a database is started: it says how to give it some, and what shows one',
  async (args) => {
    const said = await refusal(args, {}, 2)
    expect(said).toMatch(/^phaselock: expected --lifecycles \(PHASELOCK_LIFECYCLES\) to name the module/)
    expect(said).toContain('phaselock start --lifecycles ./lifecycles.js')
    expect(said).toContain('A Nest app with PhaselockModule runs its own')
    expect(said).toContain('npx phaselock demo')
  },
)
