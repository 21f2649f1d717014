import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { chunksOf, type Embedder, embeddings, fixedToken, GitCache, mongoVectors } from 'phaselock-repositories'
import { pointsOf, sha1, useRepositories } from '../sync/support.js'
import { type GitHttp, gitHttp } from './support/git-http.js'
import { gitlab } from './support/gitlab.js'
import { TestRepository } from './support/repository.js'

const TOKEN = 'glpat-verysecret'
const SIZE = { characters: 100, overlap: 20 }
const { database, world, created, synced } = useRepositories()

let repository: TestRepository
let server: GitHttp
let caches: string
beforeEach(async () => {
  repository = await TestRepository.create()
  server = await gitHttp(dirname(repository.folder))
  server.tokens = [TOKEN]
  caches = await mkdtemp(join(tmpdir(), 'phaselock-caches-'))
})
afterEach(async () => {
  await rm(caches, { recursive: true, force: true })
  await server[Symbol.asyncDispose]()
  await repository[Symbol.asyncDispose]()
})

/** Feature hashing, good enough to find words. */
const hashing: Embedder = {
  model: 'hashing',
  dimensions: 64,
  embed: async (texts) =>
    texts.map((text) => {
      const vector = new Float32Array(64)
      for (const word of text.toLowerCase().match(/\w+/g) ?? [])
        vector[createHash('md5').update(word).digest()[0]! % 64]! += 1
      return vector
    }),
}

const onGit = () =>
  world({
    sourceOf: undefined,
    chunks: SIZE,
    credentials: () => fixedToken(TOKEN),
    cache: new GitCache({ folder: caches }),
    embeddings: embeddings(hashing, { kept: mongoVectors(database.db) }),
  })

/** The truth by git itself. */
async function truth(): Promise<string[]> {
  const { stdout } = await promisify(execFile)('git', ['ls-tree', '-r', '-z', '--name-only', 'main'], {
    cwd: repository.folder,
  })
  const found: string[] = []
  for (const path of stdout.split('\0').filter(Boolean)) {
    const { stdout: text } = await promisify(execFile)('git', ['show', `main:${path}`], { cwd: repository.folder })
    for (const { lines, text: part } of chunksOf(text, SIZE))
      found.push(`${path}:${lines.from}-${lines.to} ${sha1(part).slice(0, 8)}`)
  }
  return found.sort()
}

const code = (name: string) =>
  Array.from({ length: 8 }, (_, i) => `export const ${name}${i} = () => ${name}()\n`).join('')

test('a private repository over HTTP: first sync, edits, a renamed folder, a force-push, a lost cache; the token is stored nowhere', async () => {
  const one = onGit()
  const files = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`src/old/f${i}.ts`, code(`name${i}x`)]))
  await repository.commit({ ...files, 'two\nlines.md': 'a name with a line end\n', link: { symlink: '/etc/passwd' } })
  const sync = await created(one, { url: `${server.url}/project.git`, profile: 'gitlab', exclude: ['link'] })
  expect(sync).toMatchObject({ status: 'completed', counters: { added: 31 } })
  expect(await pointsOf(one.store)).toEqual((await truth()).filter((point) => !point.startsWith('link')))

  const renamed = Object.fromEntries(Object.entries(files).map(([path, text]) => [path.replace('old', 'new'), text]))
  await repository.commit(renamed)
  await rm(caches, { recursive: true })
  expect(await synced(one)).toMatchObject({ counters: { renamed: 30, deleted: 1, embedded: 0 } })
  expect(await pointsOf(one.store)).toEqual(await truth())

  await repository.commit({ ...files, 'src/old/f0.ts': `${code('other')}` }, { onto: false })
  expect(await synced(one)).toMatchObject({ status: 'completed', counters: { renamed: 29, added: 1, deleted: 1 } })
  expect(await pointsOf(one.store)).toEqual(await truth())
  const [best] = await one.repos.search('name17x', { repository: 'r' })
  expect(best).toMatchObject({ path: 'src/old/f17.ts' })

  for (const { name } of await database.db.listCollections().toArray())
    expect(JSON.stringify(await database.db.collection(name).find().toArray())).not.toContain('verysecret')
  expect(JSON.stringify(one.logger)).not.toContain('verysecret')
})

test('a token that is refused parks a new repository, and says what it needs', async () => {
  const one = onGit()
  await repository.commit({ a: 'text\n' })
  server.tokens = ['another']
  await one.repos.create('r', { url: `${server.url}/project.git`, profile: 'gitlab', collection: 'code' })
  await one.replica.prepare()
  await one.replica.runOnce()
  expect((await one.repos.show('r')).text).toMatch(
    /^creating: http:.* 401 Unauthorized .*: the token needs read_repository/,
  )
})

test('a GitLab that hides the project in the middle of a sync, by 404: the sync fails, and all points stay', async () => {
  const files = (name: string) =>
    Object.fromEntries(Array.from({ length: 210 }, (_, i) => [`f${String(i).padStart(3, '0')}.ts`, `${name} ${i}\n`]))
  await repository.commit(files('old'))
  await using api = await gitlab(repository)
  const one = world({ sourceOf: undefined, chunks: SIZE })
  await created(one, { url: api.url, source: 'gitlab' })
  await repository.commit(files('new'))
  let read = 0
  api.intercept = (request, response) => {
    if (request.url!.includes('/repository/blobs/')) read += 1
    if (read <= 200) return false
    response.writeHead(404).end('{"message":"404 Project Not Found"}')
    return true
  }
  expect(await synced(one)).toMatchObject({ status: 'failed', error: { name: 'RepositoryNotFound' } })
  expect(await pointsOf(one.store)).toHaveLength(210)
  expect((await one.repos.files('r')).filter(({ chunks }) => chunks !== 1)).toEqual([])
  api.intercept = () => false
  expect(await synced(one)).toMatchObject({ status: 'completed', counters: { changed: 10, skipped: 0 } })
  expect(await pointsOf(one.store)).toEqual(await truth())
})

test('the same repository by GitLab has the same points', async () => {
  await repository.commit(
    Object.fromEntries(Array.from({ length: 45 }, (_, i) => [`d${i % 4}/f${i}.ts`, code(`n${i}`)])),
  )
  await using api = await gitlab(repository)
  const one = world({ sourceOf: undefined, chunks: SIZE, cache: new GitCache({ folder: caches }) })
  expect(await created(one, { url: api.url, source: 'gitlab' })).toMatchObject({
    status: 'completed',
    counters: { added: 45 },
  })
  expect(await pointsOf(one.store)).toEqual(await truth())
})
