import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from '@jest/globals'
import { fixedToken, gitSource } from 'phaselock-repositories'
import { gitHttp } from './support/git-http.js'
import { contentsOf, errorOf, headOf, treeOf } from './support/read.js'
import { TestRepository } from './support/repository.js'
import { type ServedRepository, useServedRepository } from './support/served.js'

let { repository, server, caches, cache, source } = {} as ServedRepository
const cached = useServedRepository((served) => {
  ;({ repository, server, caches, cache, source } = served)
})

test('the head of a branch by one request, its tree and its contents by a shallow fetch', async () => {
  await repository.commit({ 'a.ts': 'old\n' })
  const commit = await repository.commit({ 'a.ts': 'one\n', 'src/b.ts': 'two\n', empty: '' })
  expect(await headOf(source, 'main')).toEqual({ branch: 'main', commit })
  expect(server.requests.filter((line) => line.startsWith('GET'))).toHaveLength(1)
  const head = await headOf(source)
  expect(head).toEqual({ branch: 'main', commit })
  expect(await contentsOf(source, head)).toEqual({ 'a.ts': 'one\n', 'src/b.ts': 'two\n', empty: '' })
  const { stdout } = await promisify(execFile)('git', ['rev-list', '--all', '--count'], { cwd: await cached() })
  expect(stdout.trim()).toBe('1')
  // The second reading of the same commit asks the server for nothing.
  const before = server.requests.length
  await contentsOf(source, head)
  expect(server.requests).toHaveLength(before)
})

test('names with line ends, tabs, quotes and bad UTF-8, symlinks and submodules', async () => {
  const submodule = 'a'.repeat(40)
  await repository.commit(
    new Map<string | Buffer, any>([
      ['two\nlines.ts', '1'],
      ['tab\there', '2'],
      ['"quoted"', '3'],
      [Buffer.from([0x63, 0xe9, 0x2e, 0x74]), '4'],
      [Buffer.from([0x63, 0xe8, 0x2e, 0x74]), '5'],
      ['한국어.md', '6'],
      ['-option', '7'],
      ['link', { symlink: '/etc/passwd' }],
      ['vendor/lib', { submodule }],
    ]),
  )
  const head = await headOf(source)
  expect(await contentsOf(source, head)).toEqual({
    'two\nlines.ts': '1',
    'tab\there': '2',
    '"\\042quoted\\042"': '3',
    '"c\\351.t"': '4',
    '"c\\350.t"': '5',
    '한국어.md': '6',
    '-option': '7',
  })
  const others = (await treeOf(source, head)).filter(({ kind }) => kind !== 'file')
  expect(others.map(({ path, kind }) => [path, kind])).toEqual([
    ['link', 'symlink'],
    ['vendor/lib', 'submodule'],
  ])
  expect(others[1]).toMatchObject({ blob: submodule, bytes: undefined })
})

test('a tree whose names lead out of it reaches no disk: nothing is checked out', async () => {
  const blob = await repository.input(['hash-object', '-w', '--stdin'], Buffer.from('owned'))
  const entry = (mode: string, name: string, id: string) =>
    Buffer.concat([Buffer.from(`${mode} ${name}\0`), Buffer.from(id, 'hex')])
  const write = (tree: Buffer) => repository.input(['hash-object', '-t', 'tree', '-w', '--literally', '--stdin'], tree)
  const inner = await write(entry('100644', 'phaselock-owned', blob))
  const hooks = await write(entry('100755', 'post-checkout', blob))
  const tree = await write(Buffer.concat([entry('40000', '..', inner), entry('40000', '.git', hooks)]))
  const commit = await repository.git('-c', 'user.name=t', '-c', 'user.email=t@t', 'commit-tree', tree, '-m', 'x')
  await repository.git('update-ref', 'refs/heads/main', commit)
  expect(await contentsOf(source, await headOf(source))).toEqual({
    '../phaselock-owned': 'owned',
    '.git/post-checkout': 'owned',
  })
  const names = await readdir(caches, { recursive: true })
  expect(names.filter((name) => /owned|post-checkout/.test(name))).toEqual([])
})

test('a content above the limit is not read, and one after it is', async () => {
  await repository.commit({ a: 'x'.repeat(1_001), b: 'y'.repeat(1_000), c: 'z' })
  const contents = await contentsOf(source, await headOf(source))
  expect(contents).toEqual({ a: 'too large', b: 'y'.repeat(1_000), c: 'z' })
  expect((await treeOf(source, await headOf(source))).map(({ bytes }) => bytes)).toEqual([1_001, 1_000, 1])
})

test('a force-push: the new tree is read; the old commit is still in the cache, and gone without it', async () => {
  await repository.commit({ a: 'old' })
  const old = await headOf(source)
  await contentsOf(source, old)
  await repository.commit({ b: 'new' }, { onto: false })
  const head = await headOf(source)
  expect(head.commit).not.toBe(old.commit)
  expect(await contentsOf(source, head)).toEqual({ b: 'new' })
  expect(await contentsOf(source, old)).toEqual({ a: 'old' })
  await cache.clear()
  await repository.git('reflog', 'expire', '--expire=now', '--all')
  await repository.git('gc', '-q', '--prune=now')
  expect(await errorOf(treeOf(source, old))).toMatchObject({ name: 'CommitGone', commit: old.commit })
})

test('a server that gives out branches only', async () => {
  server.version2 = false
  await repository.commit({ a: '1' })
  const old = await headOf(source)
  expect(await contentsOf(source, old)).toEqual({ a: '1' })
  await cache.clear()
  await repository.commit({ a: '2' }, { onto: false })
  expect(await errorOf(treeOf(source, old))).toMatchObject({ name: 'CommitGone' })
  expect(await contentsOf(source, await headOf(source))).toEqual({ a: '2' })
})

test('a repository of SHA-256 blobs', async () => {
  await using other = await TestRepository.create({ format: 'sha256' })
  await other.commit({ a: '1' })
  const sha256 = gitSource({ url: other.folder, cache })
  const head = await headOf(sha256)
  expect(head.commit).toHaveLength(64)
  expect(await contentsOf(sha256, head)).toEqual({ a: '1' })
})

test('a branch that is not there: the ones that are; names that no branch has reach no command', async () => {
  await repository.commit({ a: '1' })
  await repository.commit({ a: '1' }, { branch: 'release' })
  for (const branch of ['mian', '--upload-pack=touch /tmp/phaselock-owned', 'ma*n', 'main:refs/heads/x'])
    expect(await errorOf(headOf(source, branch))).toMatchObject({
      name: 'NoSuchBranch',
      branches: ['main', 'release'],
      message: expect.stringContaining('there are: main, release'),
    })
  expect(existsSync('/tmp/phaselock-owned')).toBe(false)
})

test('of many branches the first 20 are named', async () => {
  const commit = await repository.commit({ a: '1' })
  const refs = Array.from({ length: 50 }, (_, i) => `create refs/heads/b${i} ${commit}\n`).join('')
  await repository.input(['update-ref', '--stdin'], Buffer.from(refs))
  expect(await errorOf(headOf(source, 'x'))).toMatchObject({ message: expect.stringMatching(/b0, .* and 31 more$/) })
})

test('an empty repository, and one that is gone', async () => {
  expect(await errorOf(headOf(source))).toMatchObject({ name: 'EmptyRepository' })
  expect(await errorOf(headOf(source, 'main'))).toMatchObject({ name: 'EmptyRepository' })
  const gone = gitSource({ url: `${server.url}/gone.git`, cache })
  expect(await errorOf(headOf(gone))).toMatchObject({
    name: 'RepositoryNotFound',
    message: expect.stringContaining('read_repository'),
  })
  const path = gitSource({ url: join(repository.folder, 'nowhere'), cache })
  expect(await errorOf(headOf(path))).toMatchObject({ name: 'RepositoryNotFound' })
})

describe('tokens', () => {
  const TOKEN = 'glpat-verysecret'
  const withToken = (token: string) => gitSource({ url: source.url, credentials: fixedToken(token), cache })

  test('a private repository, with and without its token, which no error shows', async () => {
    await repository.commit({ a: '1' })
    server.tokens = [TOKEN]
    expect(await contentsOf(withToken(TOKEN), await headOf(withToken(TOKEN)))).toEqual({ a: '1' })
    const denied = await errorOf(headOf(source))
    expect(denied).toMatchObject({ name: 'AccessDenied', message: expect.stringMatching(/401 .*read_repository/) })
    const wrong = await errorOf(headOf(withToken('glpat-wrongsecret')))
    expect(wrong.name).toBe('AccessDenied')
    expect(JSON.stringify([wrong.message, wrong.stack, wrong])).not.toMatch(/wrongsecret|d3Jvbmdz/)
  })

  test('are in no argument of git, and not in its cache', async () => {
    await repository.commit({ a: '1' })
    server.tokens = [TOKEN]
    let seen = ''
    server.intercept = async () => {
      const { stdout } = await promisify(execFile)('ps', ['-eo', 'args'])
      seen += stdout
      return false
    }
    await contentsOf(withToken(TOKEN), await headOf(withToken(TOKEN)))
    expect(seen).toContain('git-remote-http')
    expect(seen).not.toMatch(/glpat-verysecret|b2F1dGgyOmdscGF0/)
    const { stdout } = await promisify(execFile)('sh', ['-c', `grep -rlE 'glpat|b2F1dGgy' ${caches} || true`])
    expect(stdout).toBe('')
  })

  test('one that has expired in the middle is refreshed once', async () => {
    await repository.commit({ a: '1' })
    server.tokens = ['second']
    const calls: string[] = []
    const refreshed = (next: string) =>
      gitSource({
        url: source.url,
        cache,
        credentials: {
          token: async () => 'first',
          refresh: async ({ replacing }) => {
            calls.push(replacing)
            return next
          },
        },
      })
    expect(await headOf(refreshed('second'))).toMatchObject({ branch: 'main' })
    expect(calls).toEqual(['first'])
    expect(await errorOf(headOf(refreshed('third')))).toMatchObject({ name: 'AccessDenied' })
    expect(calls).toEqual(['first', 'first'])
  })

  test('are sent to no other host: a redirect is not followed', async () => {
    await repository.commit({ a: '1' })
    await using other = await gitHttp(dirname(repository.folder))
    server.intercept = (request, response) => {
      response.writeHead(301, { location: `${other.url}${request.url}` }).end()
      return true
    }
    expect(await errorOf(headOf(withToken(TOKEN)))).toMatchObject({
      name: 'RepositoryNotFound',
      message: expect.stringContaining('new URL'),
    })
    expect(other.requests).toEqual([])
  })
})

test.each([429, 500, 502, 503])('a server that answers %d is tried later', async (status) => {
  server.intercept = (_request, response) => {
    response.writeHead(status, { 'retry-after': '2' }).end()
    return true
  }
  expect(await errorOf(headOf(source))).toMatchObject({
    name: 'Unavailable',
    message: expect.stringContaining(String(status)),
  })
  expect(server.requests).toHaveLength(1)
})

test('a server that is away, and one that breaks off, are tried later', async () => {
  await repository.commit({ a: 'x'.repeat(10_000) })
  const head = await headOf(source)
  server.intercept = (_request, response) => {
    response.destroy()
    return true
  }
  expect(await errorOf(treeOf(source, head))).toMatchObject({ name: 'Unavailable' })
  const away = gitSource({ url: 'http://127.0.0.1:1/project.git', cache })
  expect(await errorOf(headOf(away))).toMatchObject({ name: 'Unavailable' })
})

test('what is in a URL is no answer of its server', async () => {
  server.intercept = (_request, response) => {
    response.writeHead(418).end()
    return true
  }
  const named = gitSource({ url: `${server.url}/gnutls/SSL.git`, cache })
  expect(await errorOf(headOf(named))).toMatchObject({ name: 'GitFailed' })
})

test('a server that hangs is left when the step is told to end', async () => {
  const stop = new AbortController()
  server.intercept = () => {
    setImmediate(() => stop.abort(new Error('the step ends')))
    return true
  }
  expect(await errorOf(source.head('main', { signal: stop.signal }))).toMatchObject({ message: 'the step ends' })
})

test('the variables of this process do not steer git', async () => {
  await repository.commit({ a: '1' })
  const trace = join(caches, 'trace')
  Object.assign(process.env, {
    GIT_DIR: '/nowhere',
    GIT_TRACE_CURL: trace,
    GIT_CONFIG_COUNT: '1',
    GIT_CONFIG_KEY_0: 'x.y',
    GIT_CONFIG_VALUE_0: 'z',
  })
  try {
    expect(await contentsOf(source, await headOf(source))).toEqual({ a: '1' })
  } finally {
    for (const name of Object.keys(process.env)) if (name.startsWith('GIT_')) delete process.env[name]
  }
  expect(existsSync(trace)).toBe(false)
})

test('without git, the error says what to install', async () => {
  const path = process.env['PATH']
  process.env['PATH'] = '/nowhere'
  try {
    expect(await errorOf(headOf(source))).toMatchObject({
      name: 'MissingGit',
      message: expect.stringContaining('install git'),
    })
  } finally {
    process.env['PATH'] = path
  }
})

test('10,000 files', async () => {
  const files = Object.fromEntries(
    Array.from({ length: 10_000 }, (_, i) => [`d${i % 100}/f${i}.txt`, `content ${i}\n`]),
  )
  await repository.commit(files)
  expect(await contentsOf(source, await headOf(source))).toEqual(files)
})
