import { createHash } from 'node:crypto'
import { mkdir, readdir, rename, rm, rmdir, stat, writeFile } from 'node:fs/promises'
import { hostname, tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { anything, type Checks, checkOptions } from '../../options.js'
import { gitText } from './run-git.js'

const DEFAULT_BYTES = 5_000_000_000
const USED = 'phaselock-used'
const UNFINISHED = 'phaselock-unfinished'
/** The time without a use after which a process's folder is anybody's: four times the longest step of a sync. Its process, if it lives, fetches again. */
const ABANDONED_MS = 2 * 3_600_000

/** The options of a `GitCache`. */
export interface GitCacheOptions {
  /**
   * The folder that holds the caches of this machine's processes, on a disk of its own, not on one that machines share. Default:
   * `phaselock-git` in the system's folder for temporary files.
   */
  readonly folder?: string | undefined
  /** The bytes that this process keeps after a fetch; the repositories that were unused for longest go first. Default 5 GB. */
  readonly maxBytes?: number | undefined
}

const OPTIONS: Checks<GitCacheOptions> = { folder: anything, maxBytes: anything }

/** A cached repository that isn't removed while it is held. */
export interface HeldRepository extends AsyncDisposable {
  /** The bare repository's folder. */
  readonly folder: string
}

let caches = 0

/**
 * Bare repositories on this machine's disk. It is a cache alone: what is lost or damaged is fetched again. Each process has a folder of
 * its own, because git's lock files outlive a killed process; a process adopts the folder of one that has ended.
 *
 * Invariant: the folder holds `maxBytes` for each process that was at work in the last two hours, and for one fetch of each. A pod's name is in no
 * later pod, so a folder is judged by its last use, too, by the clock of its file system.
 */
export class GitCache {
  private readonly root: string
  private readonly maxBytes: number
  private readonly name: string
  private readonly holds = new Map<string, number>()
  private readonly queues = new Map<string, Promise<unknown>>()
  private opened: Promise<string> | undefined

  /** @throws RangeError, InvalidOptions */
  constructor(options: GitCacheOptions = {}) {
    const { folder = join(tmpdir(), 'phaselock-git'), maxBytes = DEFAULT_BYTES } = checkOptions(
      'new GitCache',
      OPTIONS,
      options,
    )
    if (!(maxBytes >= 0)) throw new RangeError(`maxBytes: expected a number of bytes, got ${maxBytes}`)
    this.root = folder
    this.maxBytes = maxBytes
    caches += 1
    this.name = `${hostname()}-${process.pid}-${caches}`
  }

  /** Holds the repository of this key until it is disposed of, and creates it where it isn't there. */
  async hold(key: string, format: 'sha1' | 'sha256', signal: AbortSignal): Promise<HeldRepository> {
    this.opened ??= this.open().catch((error) => {
      this.opened = undefined // the next hold tries again
      throw error
    })
    const folder = join(await this.opened, `${keyName(key)}-${format}`)
    this.holds.set(folder, (this.holds.get(folder) ?? 0) + 1)
    const held = { folder, [Symbol.asyncDispose]: () => this.letGo(folder) }
    try {
      await this.alone(folder, () => this.create(folder, format, signal))
      await writeFile(join(folder, USED), '')
    } catch (error) {
      await this.letGo(folder)
      throw error
    }
    return held
  }

  /** Runs one work at a time on a repository. */
  alone<T>(folder: string, work: () => Promise<T>): Promise<T> {
    const before = this.queues.get(folder) ?? Promise.resolve()
    const running = before.then(work, work)
    const settled = running.then(
      () => {},
      () => {},
    )
    this.queues.set(folder, settled)
    void settled.then(() => {
      if (this.queues.get(folder) === settled) this.queues.delete(folder)
    })
    return running
  }

  /** Removes a repository that turned out to be damaged; the next hold creates it again. */
  async drop(folder: string): Promise<void> {
    await rm(folder, { recursive: true, force: true, maxRetries: 3 })
  }

  /** Empties a repository that seems to be damaged, while it is held. */
  async renew(folder: string, format: 'sha1' | 'sha256', signal: AbortSignal): Promise<void> {
    await this.drop(folder)
    await this.create(folder, format, signal)
  }

  /** Removes this process's caches. */
  async clear(): Promise<void> {
    if (this.opened) await rm(await this.opened, { recursive: true, force: true, maxRetries: 3 })
    this.opened = undefined
  }

  private async create(folder: string, format: string, signal: AbortSignal): Promise<void> {
    const isThere = await exists(join(folder, 'HEAD'))
    if (isThere && !(await exists(join(folder, UNFINISHED)))) return
    await this.drop(folder)
    await mkdir(folder, { recursive: true })
    await writeFile(join(folder, UNFINISHED), '')
    await gitText({ args: ['init', '--quiet', '--bare', '--template=', `--object-format=${format}`, folder], signal })
    await rm(join(folder, UNFINISHED))
  }

  private async letGo(folder: string): Promise<void> {
    const left = (this.holds.get(folder) ?? 1) - 1
    if (left > 0) this.holds.set(folder, left)
    else this.holds.delete(folder)
    await this.trim()
  }

  /** Removes the repositories that were unused for longest, until the rest fits. Those that are held stay. */
  private async trim(): Promise<void> {
    const own = await this.opened
    if (own === undefined) return
    await this.removeAbandoned(own)
    const found = await Promise.all((await readdir(own).catch(() => [])).map((name) => measured(join(own, name))))
    let total = found.reduce((sum, { bytes }) => sum + bytes, 0)
    for (const { folder, bytes } of found.sort((a, b) => a.usedAt - b.usedAt)) {
      if (total <= this.maxBytes) return
      await this.alone(folder, async () => {
        if (this.holds.has(folder)) return
        await this.drop(folder)
        total -= bytes
      })
    }
  }

  /** Makes this process's folder: one that an ended process has left, if there is one. */
  private async open(): Promise<string> {
    const own = join(this.root, this.name)
    await mkdir(this.root, { recursive: true, mode: 0o700 })
    await mkdir(own, { recursive: true })
    const now = (await stat(own)).mtimeMs
    for (const name of await readdir(this.root)) {
      const left = join(this.root, name)
      if (!(await isLeft(left, now))) continue
      const adopted = await rmdir(own)
        .then(() => rename(left, own))
        .then(
          () => true,
          () => false, // another process was quicker, or this one's folder isn't empty
        )
      if (adopted) break
    }
    await mkdir(own, { recursive: true })
    // A fetch that was killed leaves its lock files; no other process works here.
    for (const name of await readdir(own)) await removeLocks(join(own, name))
    return own
  }

  /** Removes the folders of processes that nobody has adopted: there are fewer processes than there were. */
  private async removeAbandoned(own: string): Promise<void> {
    const now = await lastUse(own)
    for (const name of await readdir(this.root)) {
      const left = join(this.root, name)
      if (left !== own && now - (await lastUse(left)) > ABANDONED_MS && (await isLeft(left, now))) await this.drop(left)
    }
  }
}

const keyName = (key: string): string => createHash('sha256').update(key).digest('hex').slice(0, 32)

const exists = (file: string): Promise<boolean> =>
  stat(file).then(
    () => true,
    () => false,
  )

/** Checks if a folder belongs to a process of this machine that has ended, or to any that hasn't used it for long. */
async function isLeft(folder: string, now: number): Promise<boolean> {
  const [, host, pid] = /^(.+)-(\d+)-\d+$/.exec(basename(folder)) ?? []
  if (pid === undefined || (host === hostname() && Number(pid) === process.pid)) return false
  return (host === hostname() && hasEnded(Number(pid))) || now - (await lastUse(folder)) > ABANDONED_MS
}

function hasEnded(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return false
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH'
  }
}

/** The latest use of a process's folder, in milliseconds by the file system's clock. One that is gone was used just now. */
async function lastUse(folder: string): Promise<number> {
  const modified = (file: string) =>
    stat(file).then(
      ({ mtimeMs }) => mtimeMs,
      () => Number.NEGATIVE_INFINITY,
    )
  const names = await readdir(folder).catch(() => [])
  const used = await Promise.all([modified(folder), ...names.map((name) => modified(join(folder, name, USED)))])
  const latest = Math.max(...used)
  return Number.isFinite(latest) ? latest : Number.POSITIVE_INFINITY
}

async function removeLocks(folder: string): Promise<void> {
  const names = await readdir(folder, { recursive: true }).catch(() => [])
  for (const name of names) {
    if (name.endsWith('.lock') || /(^|\/)tmp_(pack|idx|obj)_/.test(name)) await rm(join(folder, name), { force: true })
  }
}

async function measured(folder: string): Promise<{ folder: string; bytes: number; usedAt: number }> {
  const names = await readdir(folder, { recursive: true }).catch(() => [])
  const sizes = await Promise.all(
    names.map((name) =>
      stat(join(folder, name)).then(
        (file) => file.size,
        () => 0,
      ),
    ),
  )
  const usedAt = await stat(join(folder, USED)).then(
    (file) => file.mtimeMs,
    () => 0,
  )
  return { folder, bytes: sizes.reduce((sum, size) => sum + size, 0), usedAt }
}
