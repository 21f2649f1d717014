import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { type Document, MongoClient } from 'mongodb'
import { sleep } from '../../dist/time/index.js'
import { freePort } from '../../tools/servers/free-port.mjs'
import { DatabaseProxy, type Peer } from '../faults/database-proxy.ts'
import { waitFor } from '../proof/wait-for.ts'
import { aheadBy } from './fake-clock.ts'
import { SmallDisk } from './small-disk.ts'

const ANSWERS_WITHIN_MS = 2_000
const SHUTS_DOWN_WITHIN_S = 2
const STARTS_WITHIN_MS = 60_000
const CACHE_GB = '0.25'
/** Else 100 MB for each file of the journal, and at least 990 MB for the oplog. */
const ON_A_SMALL_DISK = [
  '--oplogSize',
  '64',
  '--wiredTigerEngineConfigString',
  'log=(enabled=true,archive=true,path=journal,compressor=snappy,file_max=2MB)',
]
/** To the other members' proxies, when it connects to them. */
const SAYS_WHO_IT_IS = ['--setParameter', 'enableTestCommands=1']

export interface MemberOptions {
  /** More arguments for the `mongod`. */
  readonly args?: readonly string[] | undefined
  /** Whether its clients and the other members reach it through a proxy. Default false: a proxy costs time. */
  readonly hasProxy?: boolean | undefined
  /** How far its clock is ahead of this machine's, in seconds; needs libfaketime. Default 0. */
  readonly aheadSeconds?: number | undefined
  /** A disk of this size for its data, or only for its journal, that can be filled. Default: the folder's. */
  readonly smallDisk?: { readonly megabytes: number; readonly journalOnly?: boolean } | undefined
}

/** A `mongod` of a replica set: a process that can be killed, paused and started again on its port, with its data or without. */
export class Member {
  private child: ChildProcess | undefined
  /** What its data, or its journal, is on, if that can be filled. */
  readonly disk: SmallDisk | undefined
  private readonly mongod: string
  private readonly dir: string
  private readonly args: readonly string[]
  private readonly port: number
  private readonly aheadSeconds: number
  readonly proxy: DatabaseProxy | undefined

  private constructor(
    mongod: string,
    dir: string,
    port: number,
    { args = [], aheadSeconds = 0 }: MemberOptions,
    { proxy, disk }: { proxy: DatabaseProxy | undefined; disk: SmallDisk | undefined },
  ) {
    this.mongod = mongod
    this.dir = dir
    this.disk = disk
    this.args = [...args, ...(proxy ? SAYS_WHO_IT_IS : []), ...(disk ? ON_A_SMALL_DISK : [])]
    this.aheadSeconds = aheadSeconds
    this.port = port
    this.proxy = proxy
  }

  /** @param dir its own folder, made here. @throws NoSmallDisk; Error if it doesn't answer within a minute */
  static async start(mongod: string, dir: string, options: MemberOptions = {}): Promise<Member> {
    const { smallDisk } = options
    const data = join(dir, 'data')
    await mkdir(join(data, 'journal'), { recursive: true })
    const onDisk = smallDisk?.journalOnly ? join(data, 'journal') : data
    const disk = smallDisk && (await SmallDisk.mount(onDisk, smallDisk.megabytes))
    const port = await freePort()
    const proxy = options.hasProxy ? await DatabaseProxy.start(port) : undefined
    const member = new Member(mongod, dir, port, options, { proxy, disk })
    try {
      await member.start()
      return member
    } catch (error) {
      await member.close()
      throw error
    }
  }

  /** Where clients and members find it. */
  get host(): string {
    return `127.0.0.1:${this.proxy?.port ?? this.port}`
  }

  /** As whom the proxies of other members know it. */
  get peer(): Peer {
    return `:${this.port}`
  }

  get isUp(): boolean {
    return this.child !== undefined && this.child.exitCode === null && this.child.signalCode === null
  }

  async start(): Promise<void> {
    const args = ['--port', String(this.port), '--bind_ip', '127.0.0.1', '--replSet', 'chaos', '--dbpath', this.data]
    const log = ['--logpath', join(this.dir, 'log'), '--logappend', '--wiredTigerCacheSizeGB', CACHE_GB]
    const env = this.aheadSeconds === 0 ? process.env : await aheadBy(this.aheadSeconds)
    const command = [this.mongod, ...args, ...log, ...this.args]
    const [program, ...its] = this.disk?.seenBy(command) ?? command
    const child = spawn(program!, its, { stdio: 'ignore', env })
    child.once('error', () => undefined) // it then never answers
    this.child = child
    const answers = async () => !this.isUp || (await this.command({ ping: 1 }).catch(() => false)) !== false
    const answered = await waitFor(answers, { forMs: STARTS_WITHIN_MS, everyMs: 100 })
    if (answered && this.isUp) return
    const last = (await readFile(join(this.dir, 'log'), 'utf8').catch(String)).trimEnd().split('\n').at(-1)
    throw new Error(
      `expected a mongod to answer on port ${this.port} within a minute, got ${this.isUp ? 'none' : 'its end'}: ${last}`,
    )
  }

  /** A command of `admin`, past its proxy, to this member whatever its state. @throws what the driver throws, within two seconds or that time */
  async command(command: Document, withinMs = ANSWERS_WITHIN_MS): Promise<Document> {
    // A client of its own: one that couldn't connect at first stays closed.
    const client = new MongoClient(`mongodb://127.0.0.1:${this.port}/?directConnection=true`, {
      serverSelectionTimeoutMS: withinMs,
      socketTimeoutMS: withinMs,
    })
    try {
      return await client.db('admin').command(command)
    } finally {
      await client.close()
    }
  }

  /** `kill -9`. Resolves when the process is gone. */
  async kill(): Promise<void> {
    if (!this.child || !this.isUp) return
    const gone = once(this.child, 'exit')
    this.child.kill('SIGKILL')
    await gone
  }

  /** In order: a primary hands over first. On SIGTERM a server of 5.0 and later would stay for another 15 s. */
  async shutDown(): Promise<void> {
    if (!this.child || !this.isUp) return
    const gone = once(this.child, 'exit')
    // The connection ends before the answer.
    await this.command({ shutdown: 1, timeoutSecs: SHUTS_DOWN_WITHIN_S, force: true }).catch(() => undefined)
    await Promise.race([gone, sleep(2 * SHUTS_DOWN_WITHIN_S * 1_000, { unref: true })])
    await this.kill()
  }

  pause(): void {
    this.child?.kill('SIGSTOP')
  }

  resume(): void {
    this.child?.kill('SIGCONT')
  }

  async close(): Promise<void> {
    await Promise.all([this.kill(), this.proxy?.close()])
    await this.disk?.close()
  }

  /** Its data, so that it fetches all anew from the others when it starts. Only while it is down. */
  async wipe(): Promise<void> {
    const data = this.disk?.outside(this.data) ?? this.data
    // Folders stay: one may be where a disk is mounted.
    for (const one of await readdir(data, { recursive: true, withFileTypes: true })) {
      if (one.isFile()) await rm(join(one.parentPath, one.name))
    }
  }

  private get data(): string {
    return join(this.dir, 'data')
  }
}
