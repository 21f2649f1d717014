import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { sleep } from '../../dist/time/index.js'

const FILLER = 'filler'
/** What doesn't fit in large pieces fits in small ones. */
const PIECES = [1 << 20, 1 << 12, 1 << 6].map((bytes) => Buffer.alloc(bytes))
const KEPT_FULL_EVERY_MS = 50
/** In the new namespace: as long as its standard input is open, so it ends with this process at the latest. */
const KEEPER = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && exec cat >/dev/null'

/** Thrown where this user may not mount a disk of his own: that takes user namespaces, so Linux, and not every container allows them. */
export class NoSmallDisk extends Error {
  override readonly name = 'NoSmallDisk'
  constructor(reason: string) {
    super(`expected \`unshare --user --mount\` to give a small disk, got: ${reason}`)
  }
}

/** A disk of a few hundred MB that can be filled: a tmpfs, seen by the programs that are started in its mount namespace. */
export class SmallDisk {
  private readonly keeper: ChildProcessByStdio<Writable, Readable, Readable>
  private readonly folder: string
  private isFull = false
  private keeping: Promise<void> = Promise.resolve()

  private constructor(keeper: ChildProcessByStdio<Writable, Readable, Readable>, folder: string) {
    this.keeper = keeper
    this.folder = folder
  }

  /** @param folder an empty one, absolute @throws NoSmallDisk */
  static async mount(folder: string, megabytes: number): Promise<SmallDisk> {
    const args = ['--user', '--map-root-user', '--mount', 'sh', '-c', KEEPER, 'sh', `${megabytes}m`, folder]
    const keeper = spawn('unshare', args, { stdio: ['pipe', 'pipe', 'pipe'] })
    keeper.once('error', () => undefined)
    const ended = once(keeper, 'close')
    const said = text(keeper.stderr).catch(() => '')
    try {
      const [first] = await Promise.race([once(keeper.stdout, 'data'), ended])
      if (String(first).startsWith('mounted')) return new SmallDisk(keeper, folder)
      throw new NoSmallDisk((await said).trim() || `exit code ${first}`)
    } catch (error) {
      throw error instanceof NoSmallDisk ? error : new NoSmallDisk(String(error))
    }
  }

  /** A command that runs `command` where this disk is mounted, as the same process. */
  seenBy(command: readonly string[]): readonly string[] {
    return ['nsenter', `--target=${this.keeper.pid}`, '--user', '--mount', '--preserve-credentials', '--', ...command]
  }

  /** A path of the namespace, for this process. */
  outside(path: string): string {
    return `/proc/${this.keeper.pid}/root${path}`
  }

  /** Nothing fits from now on until {@link free}; what others remove meanwhile is filled up again. */
  async fill(): Promise<void> {
    this.isFull = true
    await this.fillUp()
    this.keeping = this.keepFull()
  }

  async free(): Promise<void> {
    await this.endFilling()
    await rm(this.filler, { force: true })
  }

  /** Its data goes with it. Only when the programs that see it have ended. */
  async close(): Promise<void> {
    await this.endFilling()
    const gone = once(this.keeper, 'exit')
    this.keeper.stdin.end()
    await gone
  }

  private get filler(): string {
    return join(this.outside(this.folder), FILLER)
  }

  private async endFilling(): Promise<void> {
    this.isFull = false
    await this.keeping
  }

  private async keepFull(): Promise<void> {
    while (this.isFull) {
      await this.fillUp()
      await sleep(KEPT_FULL_EVERY_MS)
    }
  }

  private async fillUp(): Promise<void> {
    for (const piece of PIECES) {
      try {
        while (this.isFull) await appendFile(this.filler, piece)
      } catch (error) {
        if (!isOutOfSpace(error)) throw error
      }
    }
  }
}

const isOutOfSpace = (error: unknown) => (error as NodeJS.ErrnoException).code === 'ENOSPC'
