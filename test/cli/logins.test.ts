import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import { describe, expect, test } from '@jest/globals'
import { BSON } from 'mongodb'
import { Output } from '../../src/cli/output.js'
import { runCli } from '../../src/cli/run.js'
import { useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { useCliFolder } from './cli-process.js'

const key = (byte: number) => Buffer.alloc(32, byte).toString('base64')

describe('phaselock logins', () => {
  const ends = useEnds()
  const database = useDatabase()
  const folder = useCliFolder()
  const run = async (keys: string, ...args: string[]) => {
    const [out, err] = [new PassThrough(), new PassThrough()]
    const env = {
      MONGODB_URI: database.uri,
      PHASELOCK_ENVIRONMENT: 'default',
      PHASELOCK_STATE_KEYS: keys,
      CRM_PASSWORD: 'hunter2',
    }
    const context = { env, stdin: Readable.from(['']), cwd: folder().path }
    const code = await runCli(['logins', ...args], { ...context, output: new Output(out, err) })
    const [printed, problems] = [out.end(), err.end()].map((stream) => String((stream as PassThrough).read() ?? ''))
    return { code, out: printed!, err: problems!, json: () => BSON.EJSON.parse(printed!) as never }
  }

  test('stores a profile without a secret on the command line, tries it, rotates its keys, removes it', async () => {
    const server = createServer((request, response) => {
      const isRight = request.headers['x-password'] === 'hunter2'
      response.writeHead(isRight ? 200 : 403).end(JSON.stringify({ token: 'secret-token', seconds: 120 }))
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    ends.push(() => server.close())
    const file = join(folder().path, 'crm.json')
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/login`
    const profile = {
      name: 'crm',
      url,
      headers: { 'x-password': '{{secret.password}}' },
      token: 'token',
      expiresIn: 'seconds',
    }
    await writeFile(file, JSON.stringify(profile))
    const [one, both] = [`k1=${key(1)}`, `k2=${key(2)},k1=${key(1)}`]

    expect((await run(one)).out).toBe('no login profile is stored for the environment default\n')
    const set = await run(one, 'set', file, '--secrets-from-env', 'password=CRM_PASSWORD', '--by', 'ana')
    expect(set).toMatchObject({ code: 0, out: 'crm: version 1 is stored; try it with: phaselock logins try crm\n' })
    expect((await run(one, 'try', 'crm')).out).toBe('crm: a token came, which is kept for 60 s\n')
    expect((await run(one, '--json')).json()).toMatchObject([
      { name: 'crm', url, perUser: false, secrets: ['password'], keys: ['k1'], version: 1, by: 'ana' },
    ])
    expect((await run(both, 'rotate')).out).toBe(
      '1 secrets of 1 profiles are sealed with k2 now, all others were before; when the tokens of before have ended, k1 can go from PHASELOCK_STATE_KEYS\n',
    )
    expect((await run(`k2=${key(2)}`, 'try', 'crm')).code).toBe(0)
    expect(await run(one, 'try', 'crm')).toMatchObject({
      code: 1,
      err: expect.stringMatching(/^phaselock: PHASELOCK_STATE_KEYS has no key k2/),
    })

    const bad: [string[], number, string][] = [
      [['set', 'nope.json'], 2, 'expected a JSON file, got nope.json (ENOENT)'],
      [
        ['set', file],
        2,
        '{{secret.password}}: expected {{user}} or {{secret.<name>}} of secrets, of which there are none',
      ],
      [
        ['set', file, '--secrets-from-env', 'password=NOPE'],
        2,
        'expected <secret>=<variable> of a variable that is set',
      ],
      [['set', file, '--secrets-from-env', 'password=hunter2'], 2, 'got none for password'],
      [['set', file, '--secrets-from-env', 'hunter2'], 2, "got an entry without '='"],
      [['try', 'crn'], 3, 'expected the name of a login profile'],
    ]
    for (const [args, code, problem] of bad) {
      const refused = await run(both, ...args)
      expect(refused).toMatchObject({ code, err: expect.stringContaining(problem) })
      expect(refused.err).not.toContain('hunter2')
    }
    expect(await run('', 'try', 'crm')).toMatchObject({
      code: 2,
      err: expect.stringContaining('got none: <name>=<32 bytes in base64>'),
    })
    expect((await run(both, 'remove', 'crm', '--reason', 'gone')).out).toBe('crm: removed\n')
    const audit = JSON.stringify(await database.db.collection('phaselock.audit').find().toArray())
    expect(audit).toContain('logins remove')
    expect(audit).not.toMatch(/hunter2|secret-token/)
  })
})
