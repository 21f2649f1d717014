import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Db, MongoClient } from 'mongodb'
import { connectDatabase, type DatabaseConnection } from '../../dist/database/index.js'
import { sleep, systemClock } from '../../dist/time/index.js'
import { waitFor } from '../proof/wait-for.ts'
import { NoPrimary, ReplicaSet } from '../replica-set/replica-set.ts'
import { NoSmallDisk } from '../replica-set/small-disk.ts'
import { DatabaseProxy, type Peer, type ProxyMode } from './database-proxy.ts'
import { FAULT_KINDS, type Fault, type FaultKind, REPLICA_SET_FAULT_KINDS } from './plan.ts'

const KEEPER_ENDS_WITHIN_MS = 15_000
const ELECTED_WITHIN_MS = 30_000
const RESTS_MS = 4_000
/** In memory, for each of three members. */
const DISK_MB = 400

/** Each resolves when it is over: true if it struck, false if there was nothing to hit. */
export type Faults = Partial<Record<FaultKind, (fault: Fault) => Promise<boolean>>>

/** The run's own database, because it is killed, and what can happen to it. */
export interface FaultsDatabase {
  /** Not disturbed by anything but the end of the server itself. */
  readonly db: Db
  readonly uri: string
  /** For the replica of this name: the same database, through whatever disturbs it. */
  readonly disturbedUri: (replica: string) => string
  readonly ledger: { readonly db: Db; readonly uri: string }
  readonly faults: Faults
  /** The faults that can strike on it, the others included. */
  readonly kinds: readonly FaultKind[]
  /** The others that are for such a database, and why this machine can't have them. */
  readonly leftOut: Readonly<Partial<Record<FaultKind, string>>>
  close(): Promise<void>
}

type Note = (text: string, fields?: object) => void
/** A local database of its own, with the folder of its data. */
interface OwnServer {
  readonly connection: DatabaseConnection
  readonly dataDir: string
  close(): Promise<void>
}

const SLOW_MS = 250

/** A local database, which its keeper restarts when it is killed, and a proxy before it. */
export async function openLocalDatabase(note: Note): Promise<FaultsDatabase> {
  const { connection, dataDir, close } = await ownServer(note)
  const { db, uri } = connection
  const port = Number(new URL(uri).port)
  const proxy = await DatabaseProxy.start(port)
  const disturb =
    (mode: ProxyMode) =>
    async ({ forMs }: Fault) => {
      proxy.set(mode)
      await sleep(forMs, { unref: true })
      proxy.set({ kind: 'pass' })
      return true
    }
  return {
    db,
    uri,
    disturbedUri: () => uri.replace(`:${port}/`, `:${proxy.port}/`),
    ledger: { db, uri },
    faults: {
      databaseKilled: () => killEngine(dataDir),
      databaseBlackholed: disturb({ kind: 'blackhole' }),
      databaseSlow: disturb({ kind: 'slow', ms: SLOW_MS }),
      databaseNotPrimary: disturb({ kind: 'notPrimary' }),
    },
    kinds: FAULT_KINDS,
    leftOut: {},
    close: async () => {
      await proxy.close()
      await close()
    },
  }
}

/** A replica set of three, with the ledger on a server of its own. @throws NoMongod */
export async function openReplicaSet(note: Note): Promise<FaultsDatabase> {
  const { set, noSmallDisk } = await startReplicaSet()
  const ledger = await ownServer(note).catch(async (error) => {
    await set.close()
    throw error
  })
  const { db: ledgerDb, uri: ledgerUri } = ledger.connection
  const name = ledgerDb.databaseName
  const client = await new MongoClient(set.uri, {
    journal: true,
    serverSelectionTimeoutMS: ELECTED_WITHIN_MS,
  }).connect()
  let isStruck = false
  let restsUntilMs = 0
  /** One after the other, each on a whole set, and with time for work to go on in between. */
  const alone = (fault: (planned: Fault) => Promise<void>) => async (planned: Fault) => {
    const mayStrike = () => !isStruck && systemClock.monotonicMs() >= restsUntilMs
    if (!mayStrike() || !(await set.isWhole()) || !mayStrike()) return false
    isStruck = true
    try {
      await fault(planned)
      return true
    } catch (error) {
      if (error instanceof NoPrimary) return false
      throw error
    } finally {
      isStruck = false
      restsUntilMs = systemClock.monotonicMs() + RESTS_MS
    }
  }
  return {
    db: client.db(name),
    uri: set.uri,
    disturbedUri: (replica) => (addressOf(replica) ? `${set.uri}&localAddress=${addressOf(replica)}` : set.uri),
    ledger: { db: ledgerDb, uri: ledgerUri },
    faults: {
      primaryStepsDown: alone(() => set.stepDown()),
      primaryKilled: alone(({ forMs }) => set.killPrimary(forMs)),
      primaryPaused: alone(({ forMs }) => set.pausePrimary(forMs)),
      primaryPartitioned: alone(({ which, forMs }) => set.partitionPrimary(isBeside(which), forMs)),
      primaryDiskFull: alone(async ({ forMs }) => void (await set.fillPrimarysDisk(forMs))),
      majorityKilled: alone(({ forMs }) => set.killMajority(forMs)),
      secondarySlow: alone(({ forMs }) => set.slowSecondary(forMs)),
      secondaryResynced: alone(() => set.resyncSecondary()),
      membersRestarted: alone(() => set.restartAll()),
    },
    kinds: REPLICA_SET_FAULT_KINDS.filter((kind) => !noSmallDisk || kind !== 'primaryDiskFull'),
    leftOut: noSmallDisk ? { primaryDiskFull: noSmallDisk.message } : {},
    close: async () => {
      await client.close()
      await Promise.all([set.close(), ledger.close()])
    },
  }
}

/** With disks that can be filled where that is possible. */
async function startReplicaSet(): Promise<{ set: ReplicaSet; noSmallDisk?: NoSmallDisk }> {
  try {
    return { set: await ReplicaSet.start({ hasProxy: true, smallDisk: { megabytes: DISK_MB } }) }
  } catch (error) {
    if (!(error instanceof NoSmallDisk)) throw error
    return { set: await ReplicaSet.start({ hasProxy: true }), noSmallDisk: error }
  }
}

/**
 * The address that a replica connects from, so that a partition can tell replicas apart; undefined where a machine has but one of its own, as
 * anywhere but on Linux.
 */
function addressOf(replica: string): Peer | undefined {
  const number = Number(/\d+$/.exec(replica)?.[0] ?? 0)
  return process.platform === 'linux'
    ? `127.0.${1 + (Math.floor(number / 250) % 250)}.${1 + (number % 250)}`
    : undefined
}

/** Which replicas stay with a partitioned primary: one or two of three or, a quarter of the time, none. The run's own clients never do. */
const isBeside = (which: number) => (address: Peer) =>
  address !== '127.0.0.1' && Number(address.split('.').at(-1)) % 3 === Math.floor(which * 4)

async function ownServer(note: Note): Promise<OwnServer> {
  const dataDir = await mkdtemp(join(tmpdir(), 'phaselock-faults-'))
  const name = `phaselock_faults_${randomBytes(4).toString('hex')}`
  try {
    // Not `temporary`: such data goes with its keeper, and the keeper with a killed engine.
    const env = { ...process.env }
    delete env['MONGODB_URI']
    const connection = await connectDatabase({ database: name, dataDir, log: note, env })
    return {
      connection,
      dataDir,
      close: async () => {
        await connection.close()
        await waitFor(async () => !(await engineState(dataDir))?.keeper, { forMs: KEEPER_ENDS_WITHIN_MS, everyMs: 100 })
        await rm(dataDir, { recursive: true, force: true, maxRetries: 10 })
      },
    }
  } catch (error) {
    await rm(dataDir, { recursive: true, force: true })
    throw error
  }
}

async function killEngine(dataDir: string): Promise<boolean> {
  try {
    const pid = (await engineState(dataDir))?.engine?.pid
    if (pid === undefined) return false
    process.kill(pid, 'SIGKILL')
    return true
  } catch {
    return false // it is gone already
  }
}

/** What the keeper has recorded of itself and its engine; each is absent when it has ended. */
async function engineState(dataDir: string): Promise<{ engine?: { pid: number }; keeper?: object } | undefined> {
  try {
    return JSON.parse(await readFile(join(dataDir, 'engine.json'), 'utf8'))
  } catch {
    return undefined
  }
}
