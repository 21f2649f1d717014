import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, rename, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from '@jest/globals'
import { GitCache, gitSource } from 'phaselock-repositories'
import { contentsOf, errorOf, headOf, treeOf } from './support/read.js'
import { type ServedRepository, useServedRepository } from './support/served.js'

const { signal } = new AbortController()
let { repository, server, caches, cache, source } = {} as ServedRepository
const cached = useServedRepository((served) => {
  ;({ repository, server, caches, cache, source } = served)
})

describe('the cache', () => {
  test('is fetched again when its folder was lost', async () => {
    await repository.commit({ a: '1' })
    const head = await headOf(source)
    await contentsOf(source, head)
    await rm(await cached(), { recursive: true })
    expect(await contentsOf(source, head)).toEqual({ a: '1' })
  })

  test('is fetched again when it was damaged: at most one reading fails', async () => {
    await repository.commit({ a: '1', b: '2' })
    const head = await headOf(source)
    await contentsOf(source, head)
    const folder = await cached()
    const packs = (await readdir(join(folder, 'objects'), { recursive: true })).filter((name) =>
      /[0-9a-f]{38}$|pack$/.test(name),
    )
    for (const name of packs.filter((one) => /\/[0-9a-f]{38}$|\.pack$/.test(one))) {
      await rm(join(folder, 'objects', name))
      await writeFile(join(folder, 'objects', name), 'damaged')
    }
    await contentsOf(source, head).catch((error: Error) => expect(error.name).toBe('GitFailed'))
    expect(await contentsOf(source, head)).toEqual({ a: '1', b: '2' })
  })

  test('is fetched again when a single blob was lost; a fetch is kept as a pack, whole or not at all', async () => {
    await repository.commit({ a: '1', b: '2' })
    const head = await headOf(source)
    const blob = (await treeOf(source, head)).find(({ path }) => path === 'b')!.blob
    const folder = await cached()
    const objects = join(folder, 'objects')
    const packs = (await readdir(join(objects, 'pack'))).filter((name) => name.endsWith('.pack'))
    expect(packs).toHaveLength(1)
    const pack = join(caches, 'outside.pack')
    await rename(join(objects, 'pack', packs[0]!), pack)
    await rm(join(objects, 'pack'), { recursive: true })
    await promisify(execFile)('sh', ['-c', `git unpack-objects -q < ${pack}`], { cwd: folder })
    await rm(join(objects, blob.slice(0, 2), blob.slice(2)))
    const reading = async () => {
      let text: string | undefined
      for await (const { content } of source.blobs(head, [blob], { signal, maxBytes: 10 })) text = content?.toString()
      return text
    }
    expect((await errorOf(reading())).message).toContain(`has lost blob ${blob}`)
    expect(await reading()).toBe('2')
    expect(await contentsOf(source, head)).toEqual({ a: '1', b: '2' })
  })

  test('keeps what fits: the repository that was unused for longest goes, one that is read stays', async () => {
    const small = new GitCache({ folder: caches, maxBytes: 0 })
    await repository.commit({ a: '1', b: '2' })
    const one = gitSource({ url: `${server.url}/project.git`, cache: small })
    const head = await headOf(one)
    const tree = one.tree(head, { signal })[Symbol.asyncIterator]()
    await tree.next()
    const other = gitSource({ url: repository.folder, cache: small })
    await contentsOf(other, head)
    // The first one is still being read: it stays; the other one went when it had been read.
    expect((await readdir(caches, { recursive: true })).filter((name) => /[0-9a-f]{32}-sha1$/.test(name))).toHaveLength(
      1,
    )
    await tree.return?.(undefined)
    expect((await readdir(caches, { recursive: true })).filter((name) => /[0-9a-f]{32}-sha1$/.test(name))).toEqual([])
    await small.clear()
  })

  test('removes nothing that is worked on or held again', async () => {
    const small = new GitCache({ folder: caches, maxBytes: 0 })
    const held = await small.hold('key', 'sha1', signal)
    const go = Promise.withResolvers<void>()
    const working = small.alone(held.folder, async () => {
      await go.promise
      return existsSync(join(held.folder, 'HEAD'))
    })
    const letting = held[Symbol.asyncDispose]()
    await Promise.race([letting, new Promise((resolve) => setTimeout(resolve, 200))])
    const again = small.hold('key', 'sha1', signal)
    go.resolve()
    expect(await working).toBe(true)
    await letting
    await using later = await again
    expect(existsSync(join(later.folder, 'HEAD'))).toBe(true)
  })

  test('is opened again after its folder could not be made', async () => {
    const folder = join(caches, 'file')
    await writeFile(folder, '')
    const blocked = new GitCache({ folder })
    await expect(blocked.hold('key', 'sha1', signal)).rejects.toThrow('EEXIST')
    await rm(folder)
    await using held = await blocked.hold('key', 'sha1', signal)
    expect(existsSync(join(held.folder, 'HEAD'))).toBe(true)
  })

  test('of a process that has ended is adopted, without the locks that it left', async () => {
    await repository.commit({ a: '1' })
    const head = await headOf(source)
    const root = await mkdtemp(join(tmpdir(), 'phaselock-adopted-'))
    const program = `import('${join(process.cwd(), 'packages/repositories/dist/index.js')}').then(async ({ gitSource, GitCache }) => {
      const source = gitSource({ url: ${JSON.stringify(source.url)}, cache: new GitCache({ folder: ${JSON.stringify(root)} }) })
      for await (const entry of source.tree(${JSON.stringify(head)}, { signal: new AbortController().signal })) console.log(entry.path)
    })`
    const { stdout } = await promisify(execFile)(process.execPath, ['-e', program])
    expect(stdout).toBe('a\n')
    const [left] = await readdir(root)
    const [folder] = await readdir(join(root, left!))
    await writeFile(join(root, left!, folder!, 'shallow.lock'), '')
    const adopting = new GitCache({ folder: root })
    const before = server.requests.length
    const adopted = gitSource({ url: source.url, cache: adopting })
    expect(await contentsOf(adopted, head)).toEqual({ a: '1' })
    expect(server.requests).toHaveLength(before)
    expect(await readdir(root)).toHaveLength(1)
    await repository.commit({ a: '2' })
    expect(await contentsOf(adopted, await headOf(adopted))).toEqual({ a: '2' })
    await rm(root, { recursive: true })
  })

  test('of a pod whose name comes never again is adopted once it is unused for long; others are removed, and one in use stays', async () => {
    const root = await mkdtemp(join(tmpdir(), 'phaselock-pods-'))
    const long = new Date(Date.now() - 3 * 3_600_000)
    const left = async (pod: string, at: Date) => {
      const folder = join(root, `${pod}-1-1`, 'abc-sha1')
      await mkdir(folder, { recursive: true })
      await writeFile(join(folder, 'phaselock-used'), pod)
      for (const path of [join(folder, 'phaselock-used'), folder, join(root, `${pod}-1-1`)]) await utimes(path, at, at)
    }
    for (const pod of ['api-7f9c-a', 'api-7f9c-b', 'api-7f9c-c']) await left(pod, long)
    await left('api-8d2e-a', new Date())
    await writeFile(join(root, 'notes.txt'), 'not ours')
    const one = new GitCache({ folder: root })
    const held = await one.hold('key', 'sha1', signal)
    // The first one is this process's now, the others may still be adopted by processes that start with it.
    expect(dirname(held.folder)).not.toContain('api-')
    expect(await readdir(dirname(held.folder))).toContain('abc-sha1')
    expect((await readdir(root)).filter((name) => name.startsWith('api-7f9c-'))).toHaveLength(2)
    await held[Symbol.asyncDispose]()
    const names = await readdir(root)
    expect(names.filter((name) => name.startsWith('api-'))).toEqual(['api-8d2e-a-1-1'])
    expect(names).toContain('notes.txt')
    await rm(root, { recursive: true })
  })

  test('that another process took, because it was unused for long, is made again', async () => {
    await using first = await cache.hold('key', 'sha1', signal)
    await first[Symbol.asyncDispose]()
    await rename(dirname(first.folder), `${dirname(first.folder)}-taken`)
    await using again = await cache.hold('key', 'sha1', signal)
    expect(existsSync(join(again.folder, 'HEAD'))).toBe(true)
    await rm(`${dirname(first.folder)}-taken`, { recursive: true })
  })

  test('two readings of one repository at once fetch it one after the other', async () => {
    await repository.commit({ a: '1' })
    const head = await headOf(source)
    const all = await Promise.all(Array.from({ length: 5 }, () => contentsOf(source, head)))
    expect(all).toEqual(Array.from({ length: 5 }, () => ({ a: '1' })))
    expect(server.requests.filter((line) => line.endsWith('git-upload-pack') && line.startsWith('POST'))).toHaveLength(
      2, // one for the head's reference, and one fetch
    )
  })
})
