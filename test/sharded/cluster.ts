import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { access, constants, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { type Document, MongoClient } from 'mongodb'
import { mongodPath, NoMongod } from '../../chaos/replica-set/mongod.ts'
import { sleep, systemClock } from '../../dist/time/index.js'
import { freePort } from '../../tools/servers/free-port.mjs'
import { RouterClocks } from './router-clocks.ts'

const STARTS_WITHIN_MS = 120_000
const CACHE_GB = '0.25'
export const SHARDS = ['shard0', 'shard1'] as const

/**
 * The paths of a `mongod` and of the `mongos` beside it.
 * @throws NoMongod
 */
export async function shardingPrograms(): Promise<{ mongod: string; mongos: string }> {
  const mongod = await mongodPath()
  const mongos = join(dirname(mongod), 'mongos')
  try {
    await access(mongos, constants.X_OK)
  } catch {
    throw new NoMongod(`no mongos beside ${mongod}: it comes with MongoDB's server, as a package of its own`)
  }
  return { mongod, mongos }
}

/** A `mongod` or `mongos` on a port of its own. */
interface Process {
  readonly child: ChildProcess
  readonly host: string
}

export interface ClusterOptions {
  /** By how much each router's `$$NOW` is ahead (see router-clocks.ts); without it no proxy is in between. */
  readonly clocksAheadMs?: readonly [number, number] | undefined
  /** Server parameters of the shards. */
  readonly shardParameters?: Readonly<Record<string, string | number>>
}

/** Two shards and the config server, of one member each, behind two routers. Chunks move only when they are told to. */
export class ShardedCluster {
  private readonly processes: Process[] = []
  private readonly routers: Process[] = []
  private shards: readonly Process[] = []
  private readonly clocks: RouterClocks[] = []
  private readonly dir: string

  private constructor(dir: string) {
    this.dir = dir
  }

  /** @throws NoMongod */
  static async start(options: ClusterOptions = {}): Promise<ShardedCluster> {
    const programs = await shardingPrograms()
    const cluster = new ShardedCluster(await mkdtemp(join(tmpdir(), 'phaselock-sharded-')))
    try {
      await cluster.assemble(programs, options)
      return cluster
    } catch (error) {
      await cluster.close()
      throw error
    }
  }

  /** Of each router by itself. */
  get uris(): readonly [string, string] {
    return [`mongodb://${this.routers[0]!.host}/`, `mongodb://${this.routers[1]!.host}/`]
  }

  /** Of the shards themselves, in the order of their names: a database is on one of them. */
  get shardUris(): readonly string[] {
    return this.shards.map(({ host }) => `mongodb://${host}/?directConnection=true`)
  }

  /** How many commands reached a shard with another time than the router's own. */
  movedTimes(): number {
    return this.clocks.reduce((sum, { moved }) => sum + moved, 0)
  }

  /** `kill -9`; the other router goes on. */
  async killRouter(n: 0 | 1): Promise<void> {
    await kill(this.routers[n]!)
  }

  async close(): Promise<void> {
    await Promise.all([...this.routers, ...this.processes].map(kill))
    await Promise.all(this.clocks.map((one) => one.stop()))
    await rm(this.dir, { recursive: true, force: true, maxRetries: 10 })
  }

  private async assemble(
    programs: { mongod: string; mongos: string },
    { clocksAheadMs, shardParameters = {} }: ClusterOptions,
  ) {
    const config = await this.member(programs.mongod, 'config', ['--configsvr'])
    await initiate('config', config.host, config.host, { configsvr: true })
    const parameters = Object.entries(shardParameters).flatMap(([name, value]) => [
      '--setParameter',
      `${name}=${value}`,
    ])
    const shards = await Promise.all(
      SHARDS.map((name) => this.member(programs.mongod, name, ['--shardsvr', ...parameters])),
    )
    this.shards = shards
    const ports = [await freePort(), await freePort()]
    const aheadMs = new Map(ports.map((port, n) => [port, clocksAheadMs?.[n as 0 | 1] ?? 0]))
    const addresses: string[] = []
    for (const [n, { host }] of shards.entries()) {
      const clocks = clocksAheadMs && (await RouterClocks.start(host, aheadMs))
      if (clocks) this.clocks.push(clocks)
      addresses.push(clocks?.host ?? host)
      await initiate(SHARDS[n]!, host, addresses[n]!)
    }
    // With test commands a router says who it is when it connects.
    const tellsName = clocksAheadMs ? ['--setParameter', 'enableTestCommands=1'] : []
    for (const port of ports) {
      const args = ['--configdb', `config/${config.host}`, '--networkMessageCompressors', 'disabled', ...tellsName]
      this.routers.push(await this.start(programs.mongos, `mongos${port}`, port, args))
    }
    const client = await new MongoClient(this.uris[0]).connect()
    try {
      for (const [n, name] of SHARDS.entries())
        await client.db('admin').command({ addShard: `${name}/${addresses[n]}`, name })
      await client.db('admin').command({ balancerStop: 1 })
    } finally {
      await client.close()
    }
  }

  private async member(mongod: string, name: string, args: readonly string[]): Promise<Process> {
    const dbpath = join(this.dir, name)
    await mkdir(dbpath)
    const more = ['--dbpath', dbpath, '--replSet', name, '--wiredTigerCacheSizeGB', CACHE_GB, ...args]
    const member = await this.start(mongod, name, await freePort(), more)
    this.processes.push(member)
    return member
  }

  private async start(program: string, name: string, port: number, args: readonly string[]): Promise<Process> {
    const log = join(this.dir, `${name}.log`)
    const all = ['--port', String(port), '--bind_ip', '127.0.0.1', '--logpath', log, ...args]
    const child = spawn(program, all, { stdio: 'ignore' })
    child.once('error', () => undefined) // it then never answers
    const one = { child, host: `127.0.0.1:${port}` }
    const untilMs = systemClock.monotonicMs() + STARTS_WITHIN_MS
    while (systemClock.monotonicMs() < untilMs && child.exitCode === null) {
      if (await admin(one.host, { ping: 1 }).catch(() => undefined)) return one
      await sleep(100)
    }
    await kill(one)
    const last = (await readFile(log, 'utf8').catch(String)).trimEnd().split('\n').at(-1)
    throw new Error(`expected ${name} to answer on ${one.host} within two minutes, it didn't: ${last}`)
  }
}

/** @param address by which the others know this member */
async function initiate(_id: string, host: string, address: string, more: Document = {}): Promise<void> {
  const settings = { electionTimeoutMillis: 2_000, heartbeatIntervalMillis: 500 }
  await admin(host, { replSetInitiate: { _id, ...more, members: [{ _id: 0, host: address }], settings } })
  while (!(await admin(host, { hello: 1 }))['isWritablePrimary']) await sleep(100)
}

async function admin(host: string, command: Document): Promise<Document> {
  const client = new MongoClient(`mongodb://${host}/?directConnection=true`, { serverSelectionTimeoutMS: 2_000 })
  try {
    return await client.db('admin').command(command)
  } finally {
    await client.close()
  }
}

async function kill({ child }: Process): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill('SIGKILL')
  await gone
}
