import { PassThrough } from 'node:stream'
import { expect, jest, test } from '@jest/globals'
import { Output } from '../../src/cli/output.js'
import { buildProgram } from '../../src/cli/program.js'
import { runCli } from '../../src/cli/run.js'
import { useDatabase } from '../support/database.js'
import { THINGS } from './cli-process.js'

jest.setTimeout(240_000)

const database = useDatabase()

/** Each command that reads, in each of its ways; the exit code is 3 where what it asks for can't be there, 1 without a cluster. */
const READING: readonly (readonly [command: string, code: number])[] = [
  ['list', 0],
  ['list thing', 0],
  ['list thing --waiting', 0],
  ['list thing --parked --failing', 0],
  ['count', 0],
  ['count thing', 0],
  ['show a', 3],
  ['pauses', 0],
  ['questions', 0],
  ['callbacks', 0],
  ['operations', 0],
  ['operations show wake-1', 3],
  ['operations run wake --lifecycle thing --all --dry-run', 0],
  ['events', 0],
  ['events a', 0],
  ['audit', 0],
  ['check', 0],
  ['status', 0],
  ['causes', 0],
  ['causes 0123456789ab', 3],
  ['flow', 0],
  ['why a', 3],
  ['replicas', 0],
  ['replicas api-1', 3],
  ['lifecycles', 0],
  ['limits', 0],
  ['locks', 0],
  ['schedules', 0],
  ['runs nightly', 3],
  ['backfills', 0],
  ['regions', 0],
  ['orphans', 1],
  ['config', 0],
  ['logins', 0],
  ['repositories', 0],
]
/** They write, run until they are stopped, or ask no database. */
const OTHERS =
  'start add set-state wake unpark cancel remove pause resume answer set-lock-timeout run demo completion'.split(' ')

const run = async (args: readonly string[]) => {
  const [out, err] = [new PassThrough(), new PassThrough()]
  const env = { HOME: '/nowhere', PATH: process.env['PATH'], MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS }
  const code = await runCli(args, { env, output: new Output(out, err) })
  return { code, said: [out, err].map((stream) => String(stream.end().read() ?? '')).join('') }
}

test.each(READING)('phaselock %s creates nothing in an empty database', async (command, code) => {
  for (const json of [[], ['--json']]) {
    const found = await run([...command.split(' '), ...json])
    expect(found.said).not.toBe('')
    expect(found).toMatchObject({ code })
    expect(await database.db.listCollections().toArray()).toEqual([])
  }
})

test('each command is one that reads or another one', async () => {
  const output = new Output(new PassThrough(), new PassThrough())
  const { commands } = await buildProgram({ env: {}, cwd: process.cwd(), output } as never)
  const reading = READING.map(([command]) => command.split(' ')[0]!)
  expect(commands.map((one) => one.name()).sort()).toEqual([...new Set([...reading, ...OTHERS])].sort())
})
