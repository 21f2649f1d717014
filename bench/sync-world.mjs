import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Replica } from '../dist/index.js'
import { GitCache, gitSource, repositories } from '../packages/repositories/dist/index.js'

const COMMITTER = 'committer T <t@example.org> 1700000000 +0000\ndata 1\nx\n'
const WORDS = Array.from({ length: 400 }, (_, i) => `word${(i * 7919) % 9973}`)
const LINE_WORDS = 8

/** The text of a file: its own words in its own order, in lines. */
export function textOf(n, bytes) {
  const lines = []
  for (let size = 0, i = n; size < bytes; i += 1) {
    const line = Array.from({ length: LINE_WORDS }, (_, w) => WORDS[(i * 31 + w * (n + 3)) % WORDS.length]).join(' ')
    lines.push(`${line} ${n}`)
    size += line.length
  }
  return `${lines.join('\n')}\n`
}

/** A bare repository of many files, a hundred in each folder. */
export async function manyFiles(files, bytes) {
  const folder = await mkdtemp(join(tmpdir(), 'phaselock-bench-origin-'))
  const git = (...args) => promisify(execFile)('git', args, { cwd: folder })
  await git('init', '-q', '--bare', '-b', 'main')
  const commit = async (write) => {
    const importing = spawn('git', ['fast-import', '--quiet', '--done'], {
      cwd: folder,
      stdio: ['pipe', 'ignore', 'inherit'],
    })
    const ended = once(importing, 'exit')
    const put = async (text) => {
      if (!importing.stdin.write(text)) await once(importing.stdin, 'drain')
    }
    await write(put)
    importing.stdin.end('done\n')
    const [code] = await ended
    if (code !== 0) throw new Error(`git fast-import ended with code ${code}`)
  }
  const file = (n, text) => `M 100644 inline ${pathOf(n)}\ndata ${Buffer.byteLength(text)}\n${text}\n`
  await commit(async (put) => {
    await put(`commit refs/heads/main\n${COMMITTER}`)
    for (let n = 0; n < files; n += 1) await put(file(n, textOf(n, bytes)))
  })
  return {
    folder,
    /** A commit that changes one file. */
    change: (n) =>
      commit((put) =>
        put(
          `commit refs/heads/main\n${COMMITTER}from refs/heads/main^0\n${file(n, `one more line\n${textOf(n, bytes)}`)}`,
        ),
      ),
    remove: () => rm(folder, { recursive: true, force: true }),
  }
}

const pathOf = (n) => `src/d${Math.floor(n / 100)}/f${n}.ts`

/** Feature hashing: 0.15 ms for 7,000 characters, and it needs nothing. */
export function hashedVector(text, dimensions = 64) {
  const vector = new Float32Array(dimensions)
  for (const [word] of text.matchAll(/\w+/g)) {
    let hash = 0x811c9dc5
    for (let i = 0; i < word.length; i += 1) hash = Math.imul(hash ^ word.charCodeAt(i), 0x01000193)
    vector[(hash >>> 0) % dimensions] += hash & 1 ? 1 : -1
  }
  const length = Math.hypot(...vector) || 1
  return vector.map((value) => value / length)
}

/** A replica that keeps one repository in sync, read by git. The calls of its source are counted. */
export async function syncing({ db, origin, store, embeddings }) {
  const cacheFolder = await mkdtemp(join(tmpdir(), 'phaselock-bench-cache-'))
  const source = gitSource({ url: origin, cache: new GitCache({ folder: cacheFolder }) })
  const calls = { head: 0, tree: 0, blobs: 0 }
  const counted =
    (name) =>
    (...args) => {
      calls[name] += 1
      return source[name](...args)
    }
  const sourceOf = () => ({ url: source.url, head: counted('head'), tree: counted('tree'), blobs: counted('blobs') })
  const repos = repositories({ db, store, embeddings, sourceOf })
  const replica = new Replica({ db, lifecycles: repos.lifecycles })
  await replica.start()
  const ended = async (before) => {
    for (;;) {
      const [latest] = await repos.syncs('bench', { limit: 1 })
      if (latest && latest._id !== before && latest.status !== 'running') return latest
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
  return {
    repos,
    calls,
    async first() {
      await repos.create('bench', { url: origin, collection: 'code' })
      return ended(undefined)
    },
    async again() {
      const [before] = await repos.syncs('bench', { limit: 1 })
      Object.assign(calls, { head: 0, tree: 0, blobs: 0 })
      await repos.sync('bench', { by: 'bench' })
      return ended(before._id)
    },
    async close() {
      await replica.stop()
      await rm(cacheFolder, { recursive: true, force: true })
    },
  }
}
