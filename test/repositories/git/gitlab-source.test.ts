import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { fixedToken, GitCache, gitlabSource, gitSource, type Source } from 'phaselock-repositories'
import { type Gitlab, gitlab } from './support/gitlab.js'
import { contentsOf, errorOf, headOf, treeOf } from './support/read.js'
import { TestRepository } from './support/repository.js'

let repository: TestRepository
let server: Gitlab
let source: Source
beforeEach(async () => {
  repository = await TestRepository.create()
  server = await gitlab(repository)
  source = gitlabSource({ url: `${server.url}.git` })
})
afterEach(async () => {
  await server[Symbol.asyncDispose]()
  await repository[Symbol.asyncDispose]()
})

const manyFiles = Object.fromEntries(Array.from({ length: 95 }, (_, i) => [`d${i % 7}/f${i}.txt`, `content ${i}`]))

test('head, tree and contents are those that git reads; one request for the head of a branch', async () => {
  const submodule = 'b'.repeat(40)
  const commit = await repository.commit({ ...manyFiles, link: { symlink: '/etc/passwd' }, sub: { submodule } })
  expect(await headOf(source, 'main')).toEqual({ branch: 'main', commit })
  expect(server.requests).toHaveLength(1)
  const head = await headOf(source)
  expect(head).toEqual({ branch: 'main', commit })
  const cache = new GitCache()
  const byGit = gitSource({ url: repository.folder, cache })
  const plain = (entries: Awaited<ReturnType<typeof treeOf>>) =>
    entries.map(({ path, blob, kind }) => `${path} ${blob} ${kind}`).sort()
  expect(plain(await treeOf(source, head))).toEqual(plain(await treeOf(byGit, head)))
  await cache.clear()
  expect(server.requests.filter((url) => url.includes('/tree')).length).toBeGreaterThan(4)
  expect(await contentsOf(source, head)).toEqual(manyFiles)
})

test.each([
  ['a full last page that names an empty one', true],
  ['an instance that numbers its pages', false],
])('listings in pages: %s', async (_, hasKeyset) => {
  server.hasKeyset = hasKeyset
  // Two pages of 20 exactly.
  const files = Object.fromEntries(Array.from({ length: 40 }, (_, i) => [`f${i}`, `content ${i}`]))
  await repository.commit(files)
  const head = await headOf(source)
  const before = server.requests.length
  expect((await treeOf(source, head)).map(({ path }) => path).sort()).toEqual(Object.keys(files).sort())
  expect(server.requests.length - before).toBe(hasKeyset ? 3 : 2)
})

test("the server of the tests answers with the fields of GitLab's entities", async () => {
  const id = await repository.commit({ 'd/a': '1', b: '2', sub: { submodule: 'b'.repeat(40) } })
  const { origin } = new URL(server.url)
  const project = `${origin}/api/v4/projects/${encodeURIComponent('group/sub/project')}`
  const ask = async (path: string) => (await fetch(`${project}${path}`)).json() as Promise<never>
  const tree: { type: string; mode: string }[] = await ask(
    `/repository/tree?ref=${id}&recursive=true&pagination=keyset&per_page=100`,
  )
  for (const node of tree) expect(Object.keys(node).sort()).toEqual(['id', 'mode', 'name', 'path', 'type'])
  expect(tree.map(({ type, mode }) => `${type} ${mode}`).sort()).toEqual([
    'blob 100644',
    'blob 100644',
    'commit 160000',
    'tree 040000',
  ])
  const fields = ['can_push', 'commit', 'default', 'developers_can_merge', 'developers_can_push']
  const branch = [...fields, 'merged', 'name', 'protected', 'web_url']
  expect(Object.keys(await ask('/repository/branches/main'))).toEqual(expect.arrayContaining(branch))
  const [listed]: object[] = await ask('/repository/branches')
  expect(Object.keys(listed!).sort()).toEqual(branch)
  expect(await ask('')).toMatchObject({ default_branch: 'main', empty_repo: false })
  for (const [path, message] of [
    [`/repository/tree?ref=${'c'.repeat(40)}&recursive=true&pagination=keyset`, '404 Tree Not Found'],
    [`/repository/blobs/${'c'.repeat(40)}/raw`, '404 Blob Not Found'],
    ['/repository/branches/none', '404 Branch Not Found'],
  ])
    expect(await ask(path!)).toEqual({ message })
})

test('a content above the limit is not read', async () => {
  await repository.commit({ a: 'x'.repeat(100_000), b: 'y' })
  expect(await contentsOf(source, await headOf(source))).toEqual({ a: 'too large', b: 'y' })
})

test('a branch that is not there, an empty repository, and a project that is gone or private', async () => {
  expect(await errorOf(headOf(source))).toMatchObject({ name: 'EmptyRepository' })
  expect(await errorOf(headOf(source, 'main'))).toMatchObject({ name: 'EmptyRepository' })
  await repository.commit({ a: '1' })
  await repository.commit({ a: '1' }, { branch: 'feature/x' })
  expect(await headOf(source, 'feature/x')).toMatchObject({ branch: 'feature/x' })
  for (const branch of ['mian', '../../../user', 'a b'])
    expect(await errorOf(headOf(source, branch))).toMatchObject({
      name: 'NoSuchBranch',
      branches: ['feature/x', 'main'],
    })
  const gone = gitlabSource({ url: server.url.replace('project', 'gone') })
  expect(await errorOf(headOf(gone))).toMatchObject({
    name: 'RepositoryNotFound',
    message: expect.stringContaining('read_api'),
  })
})

test('a commit that the server has no longer', async () => {
  await repository.commit({ a: '1' })
  const head = { branch: 'main', commit: 'c'.repeat(40) }
  expect(await errorOf(treeOf(source, head))).toMatchObject({ name: 'CommitGone' })
})

describe('tokens', () => {
  test('a wrong one, without one, and without the scope; no error shows it', async () => {
    await repository.commit({ a: '1' })
    server.tokens = ['glpat-good']
    const good = gitlabSource({ url: server.url, credentials: fixedToken('glpat-good') })
    expect(await contentsOf(good, await headOf(good))).toEqual({ a: '1' })
    const bad = gitlabSource({ url: server.url, credentials: fixedToken('glpat-bad') })
    for (const one of [source, bad])
      expect(await errorOf(headOf(one, 'main'))).toMatchObject({
        name: 'AccessDenied',
        message: `${one.url}: GitLab 401 Unauthorized (401 Unauthorized): the token needs read_api`,
      })
    server.intercept = (_request, response) => {
      const body = { error: 'insufficient_scope', error_description: 'for glpat-bad', scope: 'api read_api' }
      response.writeHead(403).end(JSON.stringify(body))
      return true
    }
    const denied = await errorOf(headOf(bad, 'main'))
    expect(denied.message).toContain('403 Forbidden (for ***; one of these scopes is needed: api read_api)')
  })

  test('one that expires in the middle of a listing is refreshed once, and the listing goes on', async () => {
    await repository.commit(manyFiles)
    server.tokens = ['first']
    let token = 'first'
    let refreshed = 0
    const credentials = {
      token: async () => token,
      refresh: async () => {
        refreshed += 1
        token = 'second'
        return token
      },
    }
    const expiring = gitlabSource({ url: server.url, credentials })
    const head = await headOf(expiring, 'main')
    server.intercept = (_request, _response, count) => {
      if (count === 4) server.tokens = ['second']
      return false
    }
    const files = (await treeOf(expiring, head)).map(({ path }) => path)
    expect(files.sort()).toEqual(Object.keys(manyFiles).sort())
    expect(refreshed).toBe(1)
  })

  test('are sent to no other host: the next page is asked for at this one, whatever the Link header says', async () => {
    await repository.commit(manyFiles)
    const head = await headOf(source)
    await treeOf(source, head) // the test's server names internal.example
    expect(server.requests.filter((url) => url.includes('page_token')).length).toBeGreaterThan(3)
    server.intercept = (_request, response) => {
      response.writeHead(301, { location: 'http://127.0.0.1:1/' }).end()
      return true
    }
    expect(await errorOf(headOf(source, 'main'))).toMatchObject({ name: 'RepositoryNotFound' })
  })
})

test('a 429 in the middle is one request, and says when to come back', async () => {
  await repository.commit(manyFiles)
  const head = await headOf(source)
  const before = server.requests.length
  server.intercept = (_request, response, count) => {
    if (count < before + 3) return false
    response.writeHead(429, { 'retry-after': '7' }).end()
    return true
  }
  expect(await errorOf(treeOf(source, head))).toMatchObject({ name: 'Unavailable', retryAfterMs: 7_000 })
  expect(server.requests).toHaveLength(before + 3)
})

test.each([
  ['a 502', (response: any) => response.writeHead(502).end('<html>'), 'Unavailable'],
  ['a connection that breaks', (response: any) => response.destroy(), 'Unavailable'],
  ['something else than JSON', (response: any) => response.writeHead(200).end('<html>'), 'Unavailable'],
  ['a status that no GitLab answers', (response: any) => response.writeHead(418).end(), 'Error'],
])('%s', async (_, answer, name) => {
  server.intercept = (_request, response) => {
    answer(response)
    return true
  }
  expect(await errorOf(headOf(source, 'main'))).toMatchObject({ name, message: expect.stringContaining('GitLab') })
  expect(server.requests).toHaveLength(1)
})

test('a listing that names the same next page for ever is left', async () => {
  server.intercept = (_request, response) => {
    response.writeHead(200, { link: '<http://x/?page_token=1>; rel="next"' }).end('[]')
    return true
  }
  expect((await errorOf(treeOf(source, { branch: 'main', commit: 'c'.repeat(40) }))).message).toContain('twice')
})

test('a server that hangs is left when the step is told to end', async () => {
  const stop = new AbortController()
  server.intercept = () => {
    setImmediate(() => stop.abort(new Error('the step ends')))
    return true
  }
  expect(await errorOf(source.head('main', { signal: stop.signal }))).toMatchObject({ message: 'the step ends' })
})
