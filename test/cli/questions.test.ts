import { execFileSync } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, jest, test } from '@jest/globals'
import { eventually, useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'
import { THINGS, useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('the commands for questions', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  /** A file of tokens with this in it. */
  async function written(text: string): Promise<string> {
    const path = join(folder().path, 'tokens')
    await writeFile(path, text)
    return path
  }
  const run = (...args: string[]) =>
    folder().run(args, { MONGODB_URI: database.uri, ...(args[0] === 'start' && { PHASELOCK_LIFECYCLES: THINGS }) })

  test('questions lists them, answer answers one; list, show and count tell', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (doc, step) => {
        if (step.answer) return step.moveTo('Created')
        const options =
          doc._id === 'a' ? { options: ['yes', 'no'], to: 'ops', timeout: '2h' as const, onTimeout: 'no' } : {}
        return step.ask({ question: `Ship ${doc._id}?`, ...options })
      }),
    )
    await replica.prepare()
    expect(await run('questions')).toMatchObject({ code: 0, out: 'nothing is asked\n', err: '' })
    expect((await run('questions', '--json')).json()).toEqual([])
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    await things(database.db).insertOne({ _id: 'b', phase: 'Creating' })
    await replica.runOnce()

    const listed = await run('questions')
    expect(listed.out).toMatch(/^LIFECYCLE +ID +QUESTION +ANSWERS +TO +ASKED +ENDS$/m)
    expect(listed.out).toMatch(
      /^thing +a +Ship a\? +yes, no +ops +\S.* +in .* \(no\)\nthing +b +Ship b\? +any text +- +\S.* +-$/m,
    )
    expect((await run('questions', 'thing', '--json')).json()).toMatchObject([
      { lifecycle: 'thing', _id: 'a', question: 'Ship a?', options: ['yes', 'no'], to: ['ops'], onTimeout: 'no' },
      { lifecycle: 'thing', _id: 'b', question: 'Ship b?', options: [], to: [], deadline: null, times: 1 },
    ])
    expect((await run('list', 'thing')).out).toMatch(
      /^a +Creating +- +asking, ends in .* +asks Ship a\? \(yes or no\), of ops$/m,
    )
    expect((await run('count', '--fresh')).out).toMatch(/^thing +Creating +2 +- +- +2 \(2 asking\) +- +-$/m)
    expect((await run('show', 'b')).out).toMatch(
      /^Asks 'Ship b\?' since .*answer b <text>\), for as long as that takes\.$/m,
    )

    const refused = await run('answer', 'a', 'maybe')
    expect(refused.code).toBe(4)
    expect(refused.err).toContain("thing a can't be answered: expected one of yes, no, got 'maybe'; nothing was stored")
    const long = await run('answer', 'a', 'yes', '--reason', 'x'.repeat(1_001))
    expect(long).toMatchObject({ code: 2, err: 'phaselock: --reason: expected at most 1000 characters, got 1001\n' })
    const answered = await run('answer', 'a', 'yes', '--by', 'ana', '--reason', 'checked')
    expect(answered).toMatchObject({ code: 0, err: '' })
    expect(answered.out).toBe("thing a: 'yes' to 'Ship a?', by ana; it is due now\n")
    const twice = await run('answer', 'a', 'no', '--json')
    expect(twice.code).toBe(4)
    expect(twice.out + twice.err).toContain("ana has answered 'yes'")
    expect((await run('answer', 'b', 'on Monday', '--by', 'ben', '--json')).json()).toEqual({
      ...{ lifecycle: 'thing', _id: 'b', question: 'Ship b?', option: 'on Monday', by: 'ben', reason: null },
    })
    await replica.runOnce()
    expect((await run('answer', 'a', 'yes')).err).toContain('it asks nothing now; see: phaselock questions')
    expect(await run('answer', 'nobody', 'yes')).toMatchObject({ code: 3 })
    expect((await run('questions')).out).toBe('nothing is asked\n')
    await replica.stop()
  })

  test('start --answer-tokens: over HTTP, by those whom the file names, as it is now', async () => {
    const [ana, ben] = ['a-token-of-ana-0123456789', 'a-token-of-ben-0123456789']
    const tokens = await written(`# who may answer\nana: ${ana}\nben: ${ben}\n`)
    const args = ['start', '--http', '0', '--http-host', '127.0.0.1', '--answer-tokens', tokens]
    const running = folder().phaselock(args, { MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS })
    const [, base] = await running.printed(/^ {2}http +(http:\S+)\/livez .*\/questions$/m)
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', asks: 'Ship a?' } as never)
    const ask = async (token: string, path = '', init = {}) => {
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
      return await fetch(`${base}/questions${path}`, { headers, ...init })
    }
    await eventually(async () => expect(await (await ask(ana)).json()).toMatchObject({ questions: [{ _id: 'a' }] }))
    expect((await fetch(`${base}/questions`)).status).toBe(401)
    expect((await ask('a-token-of-nobody-0123456789')).status).toBe(401)
    await written(`ana: ${ana}\n`)
    expect((await ask(ben)).status).toBe(401)
    await written('ana\n')
    expect((await ask(ana)).status).toBe(500)
    await written(`ana: ${ana}\n`)
    const malformed = await ask(ana, '/thing/a', { method: 'POST', body: '{"option":' })
    expect([malformed.status, await malformed.json()]).toMatchObject([
      400,
      { statusCode: 400, error: 'invalidRequest', message: expect.stringMatching(/^expected a body in JSON: /) },
    ])
    const answered = await ask(ana, '/thing/a', { method: 'POST', body: '{"option":"yes"}' })
    expect(await answered.json()).toMatchObject({ _id: 'a', option: 'yes', by: 'ana' })
    await eventually(async () =>
      expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created' }),
    )
    expect(running.err).not.toContain(ana)
    running.child.kill('SIGTERM')
    expect(await running.exited).toBe(0)
  })

  test.each([
    ['nobody', '# nobody yet\n', 'expected a line `name: token`, got none'],
    [
      'a short token',
      'ana: secret\n',
      'line 1: expected a name of up to 200 characters and a token of 20 or more, got 3 and 6',
    ],
    ['something else', 'ana\n', 'line 1: expected `name: token`, got something else'],
    ['one token twice', `ana: ${'x'.repeat(20)}\nben: ${'x'.repeat(20)}\n`, 'got the same twice'],
  ])('start --answer-tokens with %s in the file ends at once', async (_, text, problem) => {
    const tokens = await written(text)
    const refused = await run('start', '--http', '0', '--answer-tokens', tokens)
    expect(refused).toMatchObject({ code: 2, err: expect.stringContaining(problem) })
  })

  test('start --answer-tokens with a pipe, which would never end, ends at once', async () => {
    const pipe = join(folder().path, 'pipe')
    execFileSync('mkfifo', [pipe])
    expect(await run('start', '--http', '0', '--answer-tokens', pipe)).toMatchObject({
      ...{ code: 2, err: expect.stringContaining('expected a plain file, got something else') },
    })
  })

  test('start --answer-tokens without a file, or without --http', async () => {
    expect(await run('start', '--http', '0', '--answer-tokens', 'nowhere')).toMatchObject({
      ...{
        code: 2,
        err: expect.stringMatching(
          /^phaselock: --answer-tokens \S+nowhere: expected a file that can be read, got ENOENT/,
        ),
      },
    })
    const tokens = await written(`ana: ${'x'.repeat(20)}\n`)
    expect(await run('start', '--answer-tokens', tokens)).toMatchObject({
      ...{ code: 2, err: 'phaselock: expected --http too, where /questions of --answer-tokens is, got none\n' },
    })
  })
})
